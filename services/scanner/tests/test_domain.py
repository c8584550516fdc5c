from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.contracts.events.ab_runner import EvalRegressedV1
from libs.contracts.signals import MAX_PAYLOAD_BYTES
from libs.contracts.vocabulary import Severity
from libs.service_kit.testing import event_of
from services.scanner.domain import (
    Finding,
    Watermark,
    backoff_s,
    bounded,
    observed,
    regression,
    resume_at,
    severity_of_confidence,
    severity_of_flag,
    sources_of,
)
from services.scanner.tests.support import LONG_AGO, at, source, touchpoint


def finding(**changes: Any) -> Finding:
    fields: dict[str, Any] = {
        "table": "feed_flags",
        "row_id": "17",
        "changed_at": LONG_AGO,
        "signal_type": "flag",
        "severity": "high",
        "actor_id": "user-1",
        "actor_kind": "human",
        "payload": {"text": "t"},
    }
    return Finding(**{**fields, **changes})


@pytest.mark.parametrize(
    ("category", "expected", "severity"),
    [
        ("wrong_label", "refund_status", "high"),
        ("wrong_label", None, "medium"),
        ("wrong_label", "", "medium"),
        ("not_relevant", None, "medium"),
        ("other", None, "low"),
        ("new_kind", None, "medium"),
    ],
)
def test_severity_of_a_flag(category: str, expected: str | None, severity: Severity) -> None:
    assert severity_of_flag(category, expected) == severity


@pytest.mark.parametrize(
    ("confidence", "threshold", "severity"),
    [(0.2, 0.5, "high"), (0.21, 0.5, "medium"), (0.35, 0.5, "medium"), (0.36, 0.5, "low"), (0.28, 0.7, "high")],
)
def test_severity_of_a_low_confidence(confidence: float, threshold: float, severity: Severity) -> None:
    assert severity_of_confidence(confidence, threshold) == severity


def test_sources_have_names_and_those_that_hear_events_are_not_read() -> None:
    one = touchpoint(source("si_flag"), source("eval_regression"), source("si_flag", schema="other"))
    assert [(s.name, s.scanner, dict(s.options)) for s in sources_of(one, {"eval_regression"})] == [
        ("si_flag", "si_flag", {}),
        ("si_flag#2", "si_flag", {"schema": "other"}),
    ]
    assert sources_of(touchpoint(source(), active=False), ()) == []


@given(st.integers(1, 500), st.floats(1, 86_400), st.floats(1, 10_000))
def test_back_off_grows_and_is_bounded(failures: int, every_s: float, most_s: float) -> None:
    wait, longer = backoff_s(every_s, failures, most_s), backoff_s(every_s, failures + 1, most_s)
    assert 0 < wait <= longer <= most_s


def test_back_off_begins_at_five_seconds_and_doubles() -> None:
    assert [backoff_s(60, n, 900) for n in (1, 2, 3, 9)] == [5, 10, 20, 900]
    assert backoff_s(2, 1, 900) == 2


def test_reading_resumes_after_the_last_row_but_not_within_the_overlap() -> None:
    old, new = Watermark(at(-10), "a"), Watermark(at(-0.1), "b")
    overlap = timedelta(minutes=1)
    assert resume_at(old, LONG_AGO, overlap) == old
    assert resume_at(new, LONG_AGO, overlap) == Watermark(at(-1), "")
    assert resume_at(Watermark(), LONG_AGO, overlap) == Watermark()


@given(st.integers(-600, 600), st.integers(0, 300))
def test_nothing_that_may_still_commit_lies_behind_the_watermark(read_to: int, overlap: int) -> None:
    resume = resume_at(Watermark(at(read_to / 60), "x"), LONG_AGO, timedelta(seconds=overlap))
    assert resume.at <= LONG_AGO - timedelta(seconds=overlap)
    assert resume.at <= at(read_to / 60)


def test_a_find_becomes_a_signal() -> None:
    [signal], unusable = observed("support.intent", [finding()])
    assert unusable == []
    assert signal.source_key == "feed_flags:17"
    assert signal.evidence_ref.model_dump(exclude_none=True) == {"source": "feed_flags", "id": "17"}
    assert (signal.observed_at, signal.payload.text) == (LONG_AGO, "t")


def test_the_same_row_is_the_same_event_until_it_changes() -> None:
    one, same, changed = (
        event_of(observed("support.intent", [finding(changed_at=moment)])[0][0]).id for moment in (at(0), at(0), at(1))
    )
    assert one == same != changed


def test_a_row_that_cannot_be_a_signal_holds_up_no_other_and_its_text_is_not_told() -> None:
    bad = finding(row_id="18", payload={"text": "canary", "confidence": 97.0})
    signals, [unusable] = observed("support.intent", [bad, finding()])
    assert [signal.source_key for signal in signals] == ["feed_flags:17"]
    assert unusable.source_key == "feed_flags:18"
    assert unusable.why == "confidence: less_than_equal"


def test_an_actor_without_a_name_and_a_long_one() -> None:
    signals, _ = observed("support.intent", [finding(actor_id=""), finding(actor_id="x" * 999)])
    assert [len(signal.actor_id) for signal in signals] == [7, 200]


texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
long_texts = st.builds(lambda text, times: text * times, texts, st.sampled_from([1, 30, 3_000]))


def _storable(value: Any) -> Any:
    """As the contracts clean it: no database keeps a NUL."""
    return [_storable(item) for item in value] if isinstance(value, list) else value.replace("\0", "")


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "text": long_texts,
            "reason": long_texts,
            "expected": long_texts,
            "got": long_texts,
            "extra": long_texts,
            "list": st.lists(long_texts, max_size=4),
        },
    )
)
def test_any_payload_fits_the_contract_and_says_what_was_cut(payload: dict[str, Any]) -> None:
    kept = bounded(payload).model_dump(exclude_none=True)
    assert len(json.dumps(kept)) <= MAX_PAYLOAD_BYTES
    for key, given_value in payload.items():
        value = _storable(given_value)
        if key not in kept.get("cut", []) and value != "":
            assert kept[key] == value
        elif isinstance(value, str) and value:
            assert value.startswith(kept[key])


def test_a_regression_is_one_signal_a_run_and_metric() -> None:
    fell = EvalRegressedV1(
        run_id=uuid4(),
        touchpoint_id="support.intent",
        metric="accuracy",
        baseline=0.91,
        value=0.85,
        delta=-0.06,
        severity="high",
        failing_case_ids=("dev-1", "dev-2"),
    )
    event = event_of(fell)
    signal = regression(event)
    assert signal.evidence_ref.model_dump(exclude_none=True) == {
        "source": "eval",
        "suite": "support.intent",
        "metric": "accuracy",
        "delta": -0.06,
    }
    assert (signal.source_key, signal.severity) == (f"eval:{fell.run_id}:accuracy", "high")
    assert signal.payload.reason == "accuracy fell from 0.91 to 0.85"
    assert regression(event) == signal
