"""When a run has come to a standstill."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from hypothesis import given
from hypothesis import strategies as st

from services.ab_runner.progress import Progress, stalled, standstill_reason

NOW = datetime(2026, 6, 1, tzinfo=UTC)
PATIENCE = timedelta(minutes=30)
LONG_AGO = NOW - timedelta(days=9)


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def run(dealt: float, moved: float, *, waits: bool = False, passed_over: bool = False) -> Progress:
    return Progress(uuid4(), ago(dealt), ago(moved), waits, passed_over, (3, 4), 8)


def test_a_run_that_moves_lasts_as_long_as_it_takes() -> None:
    assert stalled([run(dealt=10_000, moved=29)], NOW, PATIENCE, LONG_AGO) == []


def test_a_run_that_stands_still_ends_and_says_what_is_missing() -> None:
    lost = run(dealt=40, moved=31)
    assert stalled([lost], NOW, PATIENCE, LONG_AGO) == [lost]
    assert standstill_reason(lost, PATIENCE).startswith("no progress for 30 min: shard 3, 4 of 8 was lost")


def test_a_run_in_the_queue_waits_for_older_ones_and_not_for_younger_ones() -> None:
    older, younger = run(dealt=500, moved=1), run(dealt=10, moved=1)
    waiting = run(dealt=400, moved=400, waits=True)
    assert stalled([older, waiting, younger], NOW, PATIENCE, LONG_AGO) == []
    assert stalled([waiting, younger], NOW, PATIENCE, LONG_AGO) == [waiting]


def test_a_run_that_was_passed_over_is_in_no_queue() -> None:
    older, lost = run(dealt=500, moved=1), run(dealt=400, moved=400, waits=True, passed_over=True)
    assert stalled([older, lost], NOW, PATIENCE, LONG_AGO) == [lost]


def test_a_run_that_was_begun_waits_for_nobody() -> None:
    older, lost = run(dealt=500, moved=1), run(dealt=400, moved=300)
    assert stalled([older, lost], NOW, PATIENCE, LONG_AGO) == [lost]


RUNS = st.lists(
    st.builds(run, st.floats(0, 1e4), st.floats(0, 1e4), waits=st.booleans(), passed_over=st.booleans()), max_size=6
)


@given(RUNS, st.floats(0, 30))
def test_nothing_ends_that_was_not_watched_for_as_long(runs: list[Progress], watched: float) -> None:
    assert stalled(runs, NOW, PATIENCE, ago(watched)) == []


@given(RUNS)
def test_whatever_stands_still_does_so_by_its_own_measure_too(runs: list[Progress]) -> None:
    assert all(NOW - one.moved_at > PATIENCE for one in stalled(runs, NOW, PATIENCE, LONG_AGO))


@given(RUNS.filter(bool))
def test_when_nothing_moves_everything_ends(runs: list[Progress]) -> None:
    assert len(stalled(runs, NOW + timedelta(days=30), PATIENCE, LONG_AGO)) == len(runs)
