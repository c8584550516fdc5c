"""Suites, leaks, dealing of cases and checks of variants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.evaluations import Case
from libs.contracts.touchpoints import SuiteSettings
from services.ab_runner import domain
from services.ab_runner.domain import CannotRun, Gold, SuiteError
from services.ab_runner.tests.support import suite, variant

CASE = Case(case_id="1", input="where is my money", expected="refund", cluster="ticket 9")


@given(st.permutations(suite(8)))
def test_the_hash_of_a_suite_does_not_depend_on_the_order(cases: list[Case]) -> None:
    assert domain.suite_sha256(cases) == domain.suite_sha256(suite(8))


@pytest.mark.parametrize(
    "change", [{"case_id": "2"}, {"input": "x"}, {"expected": "x"}, {"split": "dev"}, {"cluster": None}]
)
def test_every_field_of_a_case_counts(change: dict[str, str]) -> None:
    assert domain.suite_sha256([CASE]) != domain.suite_sha256([CASE.model_copy(update=change)])


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (CASE, r"case id '1' occurs twice"),
        (Case(case_id="2", input=" \n", expected="x"), r"case '2' has a blank 'input'"),
        (Case(case_id="2", input="x", expected=" "), r"case '2' has a blank 'expected'"),
        (Case(case_id="2", input="\0 \0", expected="x"), r"case '2' has a blank 'input'"),
        (
            Case(case_id="2", input="Where  is MY\nmoney", expected="x", split="dev"),
            r"dev case '2' and test case '1' have the same input",
        ),
    ],
)
def test_what_cannot_be_a_suite_is_named(other: Case, told: str) -> None:
    with pytest.raises(SuiteError, match=told):
        domain.check_suite([CASE, other])


def test_the_same_input_twice_in_one_split_is_allowed() -> None:
    domain.check_suite([CASE, CASE.model_copy(update={"case_id": "2"})])


GOLD = Gold(["Where is my refund?", "yes  please", "Straße gesperrt heute"])


@pytest.mark.parametrize(
    "text",
    [
        "Where is my refund?",
        "- where IS my\trefund?\n- something else",
        'Examples:\n- "yes please"\n',
        "is my refund?",
        "STRASSE GESPERRT HEUTE",
        "Ｗhere is my refund?",
    ],
)
def test_gold_is_found_however_it_is_written(text: str) -> None:
    assert GOLD.leaks_into(text)


@pytest.mark.parametrize("text", ["", "my refund", "oh yes please do", "Where is my card?", "refund questions\nfees"])
def test_other_text_is_no_leak(text: str) -> None:
    assert not GOLD.leaks_into(text)


def test_a_text_across_two_inputs_is_no_leak() -> None:
    assert not Gold(["first long input", "second long input"]).leaks_into("long input second long")


@given(st.integers(0, 60), st.integers(1, 25))
def test_dealing_gives_every_case_to_both_variants_once(n: int, size: int) -> None:
    ids = [f"c{i}" for i in range(n)]
    shards = domain.deal(ids, size)
    for arm in domain.ARMS:
        assert [case for shard in shards if shard.variant == arm for case in shard.case_ids] == ids
    assert [shard.shard for shard in shards] == list(range(len(shards)))
    assert all(0 < len(shard.case_ids) <= size for shard in shards)
    assert [shard.variant for shard in shards[:2]] in ([], ["a", "b"])


def test_cases_are_chosen_in_the_order_dealt() -> None:
    assert domain.choose(["c", "a", "b"], (), "test") == ["c", "a", "b"]
    assert domain.choose(["c", "a", "b"], ("b", "c"), "test") == ["c", "b"]
    with pytest.raises(CannotRun, match=r"no case 'x1', 'x2', 'x3', 'x4', 'x5' and 2 more"):
        domain.choose(["a"], tuple(f"x{i}" for i in range(1, 8)), "test")
    with pytest.raises(CannotRun, match="no dev cases"):
        domain.choose([], (), "dev")


def test_a_variant_is_what_its_hash_says() -> None:
    domain.check_variant("A", variant("text"))
    with pytest.raises(CannotRun, match="variant B: its text has the hash"):
        domain.check_variant("B", variant("text").model_copy(update={"content_sha256": "0" * 64}))
    with pytest.raises(CannotRun, match="variant A: its text has the hash"):
        domain.check_variant("A", variant("te\0xt").model_copy(update={"content_sha256": "0" * 64}))
    assert variant("te\0xt") == variant("text")  # NUL is left out where a text enters
    twice = variant("text").parts * 2
    with pytest.raises(CannotRun, match=r"variant A: .*distinct paths"):
        domain.check_variant("A", variant("text").model_copy(update={"parts": twice}))


def test_metrics_are_known_before_a_run() -> None:
    domain.check_metrics(SuiteSettings())
    with pytest.raises(CannotRun, match="suite metric 'rouge' is unknown: there are accuracy, macro_f1"):
        domain.check_metrics(SuiteSettings(metrics=("accuracy", "rouge")))
