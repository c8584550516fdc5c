"""How answers are got: bounded, kept as they come, errors told apart."""

from __future__ import annotations

import asyncio

import pytest

from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.touchpoints import ModelSettings
from libs.llm import ModelError, OfflineModel, PromptError
from services.ab_runner import tasks
from services.ab_runner.tasks import Answer, Models, Question
from services.ab_runner.tests.support import GOOD, PRICE, RuleModel, models, outage, variant

RULES = ModelSettings(provider="rules", name="rules")
QUESTIONS = [Question(f"{i:064x}", f"my card {i}") for i in range(30)]


class Kept(list[Answer]):
    async def keep(self, answers: list[Answer]) -> None:
        await asyncio.sleep(0)
        self.extend(answers)


async def test_every_question_is_asked_once_within_the_bound() -> None:
    model, kept = RuleModel(), Kept()
    await models(model, 3).answer(RULES, GOOD, QUESTIONS, kept.keep)
    assert sorted(answer.input_sha256 for answer in kept) == [question.input_sha256 for question in QUESTIONS]
    assert {(answer.output, answer.usd) for answer in kept} == {("card", PRICE)}
    assert len(model.answered) == 30
    assert model.most_in_flight == 3


async def test_the_bound_holds_over_all_callers() -> None:
    model, kept = RuleModel(), Kept()
    shared = models(model, 3)
    await asyncio.gather(*(shared.answer(RULES, GOOD, QUESTIONS, kept.keep) for _ in range(4)))
    assert model.most_in_flight == 3
    assert len(kept) == 120


async def test_a_reply_without_a_label_is_an_answer() -> None:
    kept = Kept()
    await models(RuleModel()).answer(RULES, GOOD, [Question("0" * 64, "hello")], kept.keep)
    assert [answer.output for answer in kept] == [None]


async def test_what_was_answered_before_an_error_is_kept() -> None:
    model, kept = RuleModel(errors=[outage()]), Kept()
    with pytest.raises(ModelError, match="rate limited"):
        await models(model, 2).answer(RULES, GOOD, QUESTIONS, kept.keep)
    assert 0 < len(kept) == len(model.answered) < 30


async def test_a_defect_is_raised_as_it_is() -> None:
    model = RuleModel(errors=[ZeroDivisionError("defect")])
    with pytest.raises(ZeroDivisionError):
        await models(model).answer(RULES, GOOD, QUESTIONS, Kept().keep)
    assert model.in_flight == 0


async def test_cancelled_calls_do_not_linger() -> None:
    model = RuleModel(hold_after=5)
    task = asyncio.create_task(models(model).answer(RULES, GOOD, QUESTIONS, Kept().keep))
    while len(model.answered) < 5 or model.in_flight < 4:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.in_flight == 0


async def test_the_offline_model_is_asked_in_one_go_and_says_the_same() -> None:
    prompt = "## Labels\n### card_lost\nThe card is lost.\n### refund\nMoney back.\n"
    kept, model = Kept(), OfflineModel()
    questions = [Question("1" * 64, "I lost my card"), Question("2" * 64, "give me my money back")]
    await Models(1).answer(ModelSettings(), prompt, questions, kept.keep)
    assert [answer.output for answer in kept] == ["card_lost", "refund"]
    replies = await model.classify_many(prompt, [question.text for question in questions])
    assert [answer.output for answer in kept] == [(reply.data or {})["label"] for reply in replies]


async def test_a_prompt_without_labels_is_an_error_that_stays() -> None:
    with pytest.raises(PromptError) as caught:
        await Models(1).answer(ModelSettings(), "no labels here", QUESTIONS, Kept().keep)
    assert not caught.value.retryable


def test_models_are_opened_once_and_unknown_ones_named() -> None:
    opened = Models(1)
    assert opened.of(ModelSettings()) is opened.of(ModelSettings())
    assert opened.key(ModelSettings()) == f"offline/{OfflineModel.name}"
    with pytest.raises(ModelError, match="provider 'nowhere' is unknown"):
        opened.of(ModelSettings(provider="nowhere"))


def test_parameters_are_checked_and_hashed() -> None:
    plain = tasks.parameters(ModelSettings())
    assert plain.sha256 == tasks.parameters(ModelSettings(parameters={"temperature": 0})).sha256
    assert plain.sha256 != tasks.parameters(ModelSettings(parameters={"temperature": 0.5})).sha256
    with pytest.raises(ModelError, match="model parameter 'temprature'"):
        tasks.parameters(ModelSettings(parameters={"temprature": 0.5}))


def test_the_key_is_the_text_that_is_sent() -> None:
    single = variant("text")
    assert tasks.prompt_sha256(single) == single.content_sha256
    parts = (PromptPart(path="b", text="first"), PromptPart(path="a", text="second"))
    several = single.model_copy(update={"parts": parts})
    turned = single.model_copy(update={"parts": parts[::-1]})
    assert tasks.system_text(several) == "first\nsecond"
    assert content_sha256(parts) == content_sha256(parts[::-1])
    assert tasks.prompt_sha256(several) != tasks.prompt_sha256(turned)
