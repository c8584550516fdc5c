"""Classifying by similarity: the prompt's words decide, a batch answers as single calls do."""

import asyncio
import json
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.contracts import vocabulary
from libs.llm import ModelError, ModelReply, ModelRequest, OfflineModel, PromptError, open_model
from libs.llm.offline.label_index import affirmative
from libs.llm.offline.tests.conftest import SMALL_PROMPT

INPUTS = [
    "what do I pay for my card",
    "euro to dollar rate",
    "add money to my account",
    "",
    "💳",
    "x " * 3000,
]


async def classify(model: OfflineModel, prompt: str, text: str) -> ModelReply:
    return await model.complete(ModelRequest(task="classify", system=prompt, input=text))


async def label(model: OfflineModel, prompt: str, text: str) -> str:
    data = (await classify(model, prompt, text)).data
    assert data is not None
    return str(data["label"])


async def test_a_reply_says_who_answered_what(model: OfflineModel) -> None:
    reply = await classify(model, SMALL_PROMPT, "euro to dollar rate")
    assert (reply.provider, reply.model, reply.usage.usd) == ("offline", "offline-1", Decimal(0))
    assert reply.data is not None
    assert json.loads(reply.text) == reply.data
    assert reply.data["label"] == "exchange_rate"
    shares = [alternative["confidence"] for alternative in reply.data["alternatives"]]
    assert reply.data["alternatives"][0]["confidence"] == reply.data["confidence"]
    assert len(shares) == 3
    assert shares == sorted(shares, reverse=True)
    assert all(share >= 0 for share in shares)
    assert sum(shares) <= 1.001


async def test_the_words_of_the_prompt_decide(model: OfflineModel) -> None:
    text = "my plastic got swallowed by the machine"
    assert await label(model, SMALL_PROMPT, text) != "top_up"
    changed = SMALL_PROMPT + "Examples:\n- the machine swallowed my plastic\n"
    assert await label(model, changed, text) == "top_up"
    renamed = SMALL_PROMPT.replace("### top_up", "### swallowed_by_machine")
    assert await label(model, renamed, text) == "swallowed_by_machine"
    described = SMALL_PROMPT + "A machine swallowed it.\n"
    assert await label(model, described, text) == "top_up"


async def test_text_outside_the_labels_does_not_change_answers(model: OfflineModel) -> None:
    shouted = SMALL_PROMPT.replace("Choose the label", "ALWAYS ANSWER top_up! Choose the label")
    for text in INPUTS:
        assert (await classify(model, shouted, text)).data == (await classify(model, SMALL_PROMPT, text)).data


def test_sentences_that_exclude_do_not_attract() -> None:
    assert affirmative("A fee on a card. Not about top-ups. Also in shops.") == "A fee on a card. Also in shops."
    assert affirmative("Not about fees.") == ""


async def test_a_batch_answers_as_single_calls_do(model: OfflineModel) -> None:
    together = await model.classify_many(SMALL_PROMPT, INPUTS)
    alone = [await classify(OfflineModel(remember=1), SMALL_PROMPT, text) for text in INPUTS]
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    assert await model.classify_many(SMALL_PROMPT, []) == []


@settings(max_examples=25, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=8))
def test_any_batch_answers_as_single_calls_do(texts: list[str]) -> None:
    async def compare() -> None:
        ours = OfflineModel()
        together = await ours.classify_many(SMALL_PROMPT, texts)
        assert [reply.data for reply in together] == [(await classify(ours, SMALL_PROMPT, text)).data for text in texts]

    asyncio.run(compare())


async def test_an_input_without_tokens_is_answered_with_no_confidence(model: OfflineModel) -> None:
    reply = await classify(model, SMALL_PROMPT, "")
    assert reply.data is not None
    assert reply.data["confidence"] == 0.25


async def test_a_prompt_without_labels_is_refused_with_what_is_right(model: OfflineModel) -> None:
    with pytest.raises(PromptError, match="expected a '## Labels' section with '### name' headings"):
        await classify(model, "Be nice.", "hello")
    with pytest.raises(PromptError, match="line 3"):
        await model.classify_many("## Labels\n### a\n### a\n", ["x"])


async def test_remembered_prompts_are_bounded_and_the_oldest_goes() -> None:
    ours = OfflineModel(remember=2)
    prompts = [SMALL_PROMPT + f"### extra_{number}\n" for number in range(4)]
    for prompt in prompts:
        await classify(ours, prompt, "x")
    assert len(ours._prompts) == 2
    assert ours._known(prompts[0]) is None
    assert ours._known(prompts[3]) is not None


async def test_many_callers_at_once_get_the_same_answers(model: OfflineModel) -> None:
    fresh = OfflineModel()
    replies = await asyncio.gather(*(classify(fresh, SMALL_PROMPT, INPUTS[n % 6]) for n in range(60)))
    expected = await model.classify_many(SMALL_PROMPT, [INPUTS[n % 6] for n in range(60)])
    assert [reply.text for reply in replies] == [reply.text for reply in expected]


async def test_equal_labels_are_won_by_the_first(model: OfflineModel) -> None:
    prompt = "## Labels\n### card_fee\n### card-fee\n"
    assert await label(model, prompt, "card fee") == "card_fee"


def test_a_model_is_chosen_by_its_provider() -> None:
    assert vocabulary.registered("model_providers") == ("anthropic", "offline", "openai", "tier")
    assert isinstance(open_model("offline", "offline"), OfflineModel)
    with pytest.raises(ModelError, match="'mystery' is unknown: expected one of anthropic, offline, openai, tier"):
        open_model("mystery", "x")


def test_top_two_is_the_mean_of_the_two_largest(model: OfflineModel) -> None:
    index = model._index(SMALL_PROMPT)
    vectors = model._embedder.embed_now(["euro to dollar rate", "card"])
    similar = vectors @ index.texts.T
    for at, (start, count) in enumerate(zip(index.starts, index.counts, strict=True)):
        own = np.sort(similar[:, start : start + count], axis=1)[:, -2:].mean(axis=1)
        expected = 0.5 * own + 0.5 * vectors @ index.centroids[at]
        np.testing.assert_allclose(index.scores(vectors)[:, at], expected, atol=2e-6)


PROBE = """
import asyncio, sys
from libs.llm import ModelRequest, OfflineModel
from libs.llm.offline.tests.conftest import SMALL_PROMPT, ask, evidence
async def main():
    model = OfflineModel()
    for reply in await model.classify_many(SMALL_PROMPT, ["card fee", "euro", "money in", "pay"]):
        print(reply.text)
    dev = [{"input": "my card please", "expected": "card"}, {"input": "fee of a card", "expected": "card_fee"}]
    items = evidence("charged for the card", "a fee for my card", "fee for card", "cost of a card")
    print((await model.complete(ask(items, dev_cases=dev))).text)
asyncio.run(main())
"""


def test_processes_agree_word_for_word() -> None:
    def said(seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    first = said("1")
    assert first.count("\n") == 5
    assert said("2") == first
