from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.signals import EvidenceRef
from libs.contracts.vocabulary import Scope, Severity
from services.normaliser.domain import (
    Judged,
    Misjudged,
    Outcome,
    fact_of_rejudged,
    facts,
    normalise,
    rejudge,
    severity_of,
)
from services.normaliser.tests.support import NOON, WORKSPACE, at, observed

KNOWN: dict[str, Scope] = {"support.intent": "global", "si.relevance-scorer": "workspace"}


def normalised(*events: Event[SignalObservedV1]) -> tuple[list[Judged], list[Judged]]:
    return normalise(events, KNOWN, now=at(60))


def only_reject(*events: Event[SignalObservedV1]) -> tuple[str, str]:
    accepted, [rejected] = normalised(*events)
    assert accepted == []
    assert rejected.reject is not None
    return rejected.reject.reason, rejected.reject.detail


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"severity": "critical"}, "critical"),
        ({"payload": {"expected": "a"}}, "high"),
        ({"payload": {"category": "wrong_label"}}, "medium"),
        ({"payload": {"category": "not_relevant"}}, "medium"),
        ({"payload": {"category": "other"}}, "low"),
        ({"payload": {}}, "medium"),
        ({"signal_type": "governance_finding", "payload": {"category": "changes_requested"}}, "high"),
        ({"signal_type": "governance_finding", "payload": {"category": "pending"}}, "low"),
        ({"signal_type": "governance_finding", "payload": {}}, "medium"),
        ({"signal_type": "low_confidence", "payload": {"confidence": 0.2}}, "high"),
        ({"signal_type": "low_confidence", "payload": {"confidence": 0.35}}, "medium"),
        ({"signal_type": "low_confidence", "payload": {"confidence": 0.36}}, "low"),
        ({"signal_type": "low_confidence", "payload": {}}, "low"),
        ({"signal_type": "human_edit", "payload": {"edit_distance": 0.5}}, "high"),
        ({"signal_type": "human_edit", "payload": {"edit_distance": 0.2}}, "medium"),
        ({"signal_type": "human_edit", "payload": {"edit_distance": 0.1}}, "low"),
        ({"signal_type": "human_edit", "payload": {"edit_distance": "much"}}, "medium"),
    ],
)
def test_severity_is_the_source_s_or_that_of_the_table(changes: dict[str, Any], severity: Severity) -> None:
    assert severity_of(observed(**changes).data) == severity


@pytest.mark.parametrize(
    ("delta", "severity"),
    [(-0.1, "critical"), (-0.05, "high"), (-0.02, "medium"), (-0.019, "low"), (None, "medium")],
)
def test_severity_of_a_regression_is_how_far_it_fell(delta: float | None, severity: Severity) -> None:
    ref = EvidenceRef(source="eval", metric="accuracy", delta=delta)
    assert severity_of(observed(signal_type="eval_regression", evidence_ref=ref, payload={}).data) == severity


def test_a_signal_that_fits_is_accepted() -> None:
    [one], rejected = normalised(observed())
    assert rejected == []
    assert (one.severity, one.first_seen, one.last_seen, one.judged_scope) == ("high", NOON, NOON, "global")


def test_a_touchpoint_that_nobody_registered_is_unknown() -> None:
    assert only_reject(observed(touchpoint_id="no.such"))[0] == "unknown_touchpoint"


def test_scope_is_checked_both_ways() -> None:
    assert only_reject(observed(workspace_id=WORKSPACE))[0] == "scope"
    assert only_reject(observed(touchpoint_id="si.relevance-scorer"))[0] == "scope"
    [one], _ = normalised(observed(touchpoint_id="si.relevance-scorer", workspace_id=WORKSPACE))
    assert one.judged_scope == "workspace"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"observed_at": at(60 + 61)}, "observed_at"),
        ({"observed_at": datetime(1, 1, 1, tzinfo=UTC)}, "observed_at"),
        ({"payload": {"deep": [{"number": math.inf}]}}, "payload"),
    ],
)
def test_what_cannot_be_stored_is_invalid_and_names_the_field(changes: dict[str, Any], field: str) -> None:
    reason, detail = only_reject(observed(**changes))
    assert reason == "invalid"
    assert detail.startswith(field)


def test_keys_that_differ_in_nul_alone_are_one_key() -> None:
    [one], rejected = normalised(observed("a\x00b"), observed("ab", minutes=1))
    assert (one.source_key, one.last_seen, rejected) == ("ab", at(1), [])


def test_a_batch_holds_each_signal_once_with_the_newest_words() -> None:
    late = observed(minutes=10, payload={"text": "corrected"})
    [one], _ = normalised(observed(minutes=5), late, observed(minutes=1))
    assert (one.first_seen, one.last_seen, one.newest) == (at(1), at(10), late)


def test_an_invalid_observation_does_not_spoil_a_valid_one_of_the_same_batch() -> None:
    future = observed(minutes=10_000)
    for batch in ([observed(), future], [future, observed()]):
        [one], rejected = normalised(*batch)
        assert (rejected, one.last_seen) == ([], NOON)


observations = st.builds(
    observed,
    key=st.sampled_from(["a:1", "a:2", "a:3", "bad\x00"]),
    minutes=st.integers(-5, 200),
    touchpoint_id=st.sampled_from([*KNOWN, "no.such"]),
    workspace_id=st.sampled_from([None, WORKSPACE]),
)


@given(st.lists(observations, max_size=30))
def test_every_signal_comes_out_exactly_once_and_in_the_range_it_was_seen(
    events: list[Event[SignalObservedV1]],
) -> None:
    accepted, rejected = normalised(*events)
    ids = [one.signal_id for one in [*accepted, *rejected]]
    assert sorted(ids) == sorted({event.data.signal_id for event in events})
    for one in accepted:
        times = [e.data.observed_at for e in events if e.data.signal_id == one.signal_id]
        times = [time for time in times if time <= at(60) + timedelta(hours=1)]
        assert (one.first_seen, one.last_seen) == (min(times), max(times))
        assert (one.judged_scope == "workspace") == (one.newest.data.workspace_id is not None)


@given(st.permutations([observed(minutes=m, payload={"text": str(m)}) for m in range(5)]))
def test_the_order_within_a_batch_does_not_matter(events: list[Event[SignalObservedV1]]) -> None:
    [one], _ = normalised(*events)
    assert (one.first_seen, one.last_seen, one.newest.data.payload.text) == (at(0), at(4), "4")


def test_facts_carry_the_stored_times_and_the_first_actor() -> None:
    accepted, rejected = normalised(observed(), observed("a:2", workspace_id=WORKSPACE))
    outcomes = [
        Outcome(accepted[0].signal_id, "created", at(-5), NOON, "user-0", "human", 0),
        Outcome(rejected[0].signal_id, "rejected", NOON, NOON, "user-1", "human", 3),
    ]
    (created, because), (no, _) = facts([*accepted, *rejected], outcomes)
    assert created.model_dump(include={"first_seen", "last_seen", "actor_id", "severity"}) == {
        "first_seen": at(-5),
        "last_seen": NOON,
        "actor_id": "user-0",
        "severity": "high",
    }
    assert because is accepted[0].newest
    assert no.model_dump(include={"reason", "transition"}) == {"reason": "scope", "transition": 3}


def stored(rejected: str | None, workspace_id: object = None) -> dict[str, Any]:
    signal = observed(workspace_id=workspace_id).data
    return {
        **signal.model_dump(exclude={"observed_at"}),
        "severity": "high",
        "first_seen": NOON,
        "last_seen": NOON,
        "rejected": rejected,
        "reject_detail": "what was wrong" if rejected else None,
    }


@pytest.mark.parametrize(
    ("was", "workspace_id", "scope", "becomes", "fact"),
    [
        ("unknown_touchpoint", None, "global", None, "created"),
        ("unknown_touchpoint", None, "workspace", "scope", "rejected"),
        ("scope", None, "global", None, "created"),
        (None, None, "workspace", "scope", "rejected"),
        ("invalid", None, "global", "invalid", None),
        ("scope", WORKSPACE, "global", "scope", None),
    ],
)
def test_judging_again(
    was: str | None, workspace_id: object, scope: Scope, becomes: str | None, fact: str | None
) -> None:
    misjudged = Misjudged(observed().data.signal_id, stored(was, workspace_id), scope)
    again = rejudge(misjudged)
    assert (again.reject.reason if again.reject else None) == becomes
    assert again.judged_scope == scope
    said = fact_of_rejudged(misjudged, again, transition=1)
    assert (said.type.split(".")[2] if said else None) == fact
