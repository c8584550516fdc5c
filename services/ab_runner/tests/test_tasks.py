"""How answers are got: bounded, kept as they come, errors told apart."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID, uuid4

import pytest

from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.touchpoints import ModelSettings
from libs.llm import (
    Budget,
    FreeModelsOnly,
    ModelError,
    ModelPool,
    ModelReply,
    OfflineModel,
    Order,
    PromptError,
    Settled,
)
from services.ab_runner import tasks
from services.ab_runner.tasks import Answer, Question
from services.ab_runner.tests.support import GOOD, PRICE, RuleModel, models, outage, variant

RULES = ModelSettings(provider="rules", name="rules")
QUESTIONS = [Question(f"{i:064x}", f"my card {i}") for i in range(30)]


class Kept(list[Answer]):
    async def keep(self, answers: list[Answer]) -> None:
        await asyncio.sleep(0)
        self.extend(answers)


class Purse:
    """An account that always pays."""

    touchpoint_id = "t"

    async def open(self, orders: Sequence[Order], budget: Budget) -> list[UUID | ModelReply]:
        return [uuid4() for _ in orders]

    async def close(self, settled: Sequence[Settled]) -> None:
        await asyncio.sleep(0)


async def test_every_question_is_asked_once_within_the_bound() -> None:
    model, kept = RuleModel(), Kept()
    await tasks.answer(models(model, 3), RULES, GOOD, QUESTIONS, Purse(), kept.keep)
    assert sorted(answer.input_sha256 for answer in kept) == [question.input_sha256 for question in QUESTIONS]
    assert {(answer.output, answer.usd) for answer in kept} == {("card", PRICE)}
    assert len(model.answered) == 30
    assert model.most_in_flight == 3


async def test_the_bound_holds_over_all_callers() -> None:
    model, kept = RuleModel(), Kept()
    shared = models(model, 3)
    await asyncio.gather(*(tasks.answer(shared, RULES, GOOD, QUESTIONS, Purse(), kept.keep) for _ in range(4)))
    assert model.most_in_flight == 3
    assert len(kept) == 120


async def test_a_reply_without_a_label_is_an_answer() -> None:
    kept = Kept()
    await tasks.answer(models(RuleModel()), RULES, GOOD, [Question("0" * 64, "hello")], Purse(), kept.keep)
    assert [answer.output for answer in kept] == [None]


async def test_what_was_answered_before_an_error_is_kept() -> None:
    model, kept = RuleModel(errors=[outage()]), Kept()
    with pytest.raises(ModelError, match="rate limited"):
        await tasks.answer(models(model, 2), RULES, GOOD, QUESTIONS, Purse(), kept.keep)
    assert 0 < len(kept) == len(model.answered) < 30


async def test_a_defect_is_raised_as_it_is() -> None:
    model = RuleModel(errors=[ZeroDivisionError("defect")])
    with pytest.raises(ZeroDivisionError):
        await tasks.answer(models(model), RULES, GOOD, QUESTIONS, Purse(), Kept().keep)
    assert model.in_flight == 0


async def test_cancelled_calls_do_not_linger() -> None:
    model = RuleModel(hold_after=5)
    task = asyncio.create_task(tasks.answer(models(model), RULES, GOOD, QUESTIONS, Purse(), Kept().keep))
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
    await tasks.answer(ModelPool(), ModelSettings(), prompt, questions, FreeModelsOnly("t"), kept.keep)
    assert [answer.output for answer in kept] == ["card_lost", "refund"]
    replies = await model.classify_many(prompt, [question.text for question in questions])
    assert [answer.output for answer in kept] == [(reply.data or {})["label"] for reply in replies]


async def test_a_prompt_without_labels_is_an_error_that_stays() -> None:
    with pytest.raises(PromptError) as caught:
        await tasks.answer(ModelPool(), ModelSettings(), "no labels here", QUESTIONS, FreeModelsOnly("t"), Kept().keep)
    assert not caught.value.retryable


def test_parameters_are_checked_and_hashed() -> None:
    def hashed(**parameters: float) -> str:
        return tasks.params_sha256(ModelPool().parameters(ModelSettings(parameters=parameters)))

    assert hashed() == "be57dc1ecf7da267ccdfdd555d305e8bb801527769c4a5339fb10a3fed3d1283"  # of answers that are stored
    assert hashed() == hashed(temperature=0)
    assert hashed() != hashed(temperature=0.5)
    with pytest.raises(ModelError, match="model parameter 'temprature'"):
        hashed(temprature=0.5)


def test_the_key_is_the_text_that_is_sent() -> None:
    single = variant("text")
    assert tasks.prompt_sha256(single) == single.content_sha256
    parts = (PromptPart(path="b", text="first"), PromptPart(path="a", text="second"))
    several = single.model_copy(update={"parts": parts})
    turned = single.model_copy(update={"parts": parts[::-1]})
    assert tasks.system_text(several) == "first\nsecond"
    assert content_sha256(parts) == content_sha256(parts[::-1])
    assert tasks.prompt_sha256(several) != tasks.prompt_sha256(turned)
