"""Requests and live prompts: pure."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from services.gateway import domain
from services.gateway.domain import Known, LivePrompts, Target

HERE, THERE = Target("summary"), Target("summary", UUID(int=1))


def known(seq: int, size: int = 1) -> Known:
    return Known(f'"{seq}"', b"x" * size, seq, 0.0)


def test_a_request_has_one_id_for_each_caller_and_key() -> None:
    assert domain.request_id("a|ada", "k") == domain.request_id("a|ada", "k")
    pairs = [("a|ada", "k"), ("a|ada", "k2"), ("a|bob", "k"), ("a|ada|k", ""), ("a", "ada|k")]
    assert len({domain.request_id(*pair) for pair in pairs}) == len(pairs)


def test_another_method_path_query_or_body_is_another_request() -> None:
    base = ("POST", "/a", b"", b"{}")
    others = [
        ("PUT", "/a", b"", b"{}"),
        ("POST", "/b", b"", b"{}"),
        ("POST", "/a", b"x", b"{}"),
        ("POST", "/a", b"", b""),
    ]
    assert domain.request_sha256(*base) not in {domain.request_sha256(*other) for other in others}
    assert domain.request_sha256("POST", "/a", b"x", b"") != domain.request_sha256("POST", "/a", b"", b"x")


def test_an_etag_matches_itself_in_a_list_and_weakly() -> None:
    assert domain.matches('"1"', '"0", W/"1"')
    assert not domain.matches('"1"', None)
    assert not domain.matches('"1"', '"11"')


def test_a_change_makes_what_is_known_and_what_is_on_its_way_worthless() -> None:
    prompts = LivePrompts(1_000)
    mark = prompts.mark(HERE)
    prompts.take(HERE, known(3), mark)
    prompts.take(THERE, known(3), prompts.mark(THERE))
    prompts.changed(HERE, 4)
    assert (prompts.get(HERE), prompts.get(THERE)) == (None, known(3))
    prompts.take(HERE, known(3), mark)
    assert prompts.get(HERE) is None
    prompts.take(HERE, known(4), prompts.mark(HERE))
    assert prompts.get(HERE) == known(4)


def test_a_fact_that_comes_late_leaves_the_answer_that_knows_of_it() -> None:
    prompts = LivePrompts(1_000)
    prompts.take(HERE, known(7), prompts.mark(HERE))
    prompts.changed(HERE, 7)
    assert prompts.get(HERE) == known(7)
    prompts.changed(HERE)
    assert prompts.get(HERE) is None


def test_a_gap_forgets_everything() -> None:
    prompts = LivePrompts(1_000)
    mark = prompts.mark(HERE)
    prompts.take(HERE, known(1), mark)
    prompts.forget()
    prompts.take(HERE, known(1), mark)
    assert prompts.get(HERE) is None


def test_a_configuration_drops_the_touchpoint_in_every_workspace() -> None:
    prompts = LivePrompts(1_000)
    for target in (HERE, THERE, Target("other")):
        prompts.take(target, known(1), prompts.mark(target))
    prompts.configured("summary")
    assert [prompts.get(each) for each in (HERE, THERE)] == [None, None]
    assert prompts.get(Target("other")) == known(1)


def test_what_was_asked_for_least_lately_goes_first() -> None:
    prompts = LivePrompts(10)
    for name in "abc":
        prompts.take(Target(name), known(1, 4), prompts.mark(Target(name)))
        prompts.get(Target("a"))
    assert [prompts.get(Target(name)) is not None for name in "abc"] == [True, False, True]
    prompts.take(Target("d"), known(1, 11), prompts.mark(Target("d")))
    assert prompts.get(Target("d")) is None


@given(st.lists(st.tuples(st.sampled_from(["asked", "answered", "fact", "gap"]), st.integers(0, 5)), max_size=40))
def test_an_older_answer_never_takes_the_place_of_a_newer(steps: list[tuple[str, int]]) -> None:
    """Questions, answers and facts in any order: what is served is never behind a fact that has come."""
    prompts, ledger, fact = LivePrompts(1_000), 1, 0
    asked: list[tuple[int, domain.Mark]] = []
    served = 0
    for step, number in steps:
        if step == "asked":
            asked.append((ledger, prompts.mark(HERE)))
        elif step == "answered" and asked:
            seq, mark = asked.pop(number % len(asked))
            prompts.take(HERE, known(seq), mark)
        elif step == "fact":
            ledger += 1
            fact = ledger
            prompts.changed(HERE, fact)
        elif step == "gap":
            prompts.forget()
            served = 0
        found = prompts.get(HERE)
        if found is not None:
            assert found.seq >= fact
            assert found.seq >= served
            served = found.seq
