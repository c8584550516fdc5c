"""What may go from a nearly full stream."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from libs.provisioning.trimming import EMPTIER, FULL, purge_up_to


def state(held: int, first: int, last: int) -> dict[str, int]:
    return {"bytes": held, "first_seq": first, "last_seq": last}


def test_a_stream_with_room_is_left_alone() -> None:
    assert purge_up_to(state(800, 1, 100), 1_000, heard=100) is None


def test_a_nearly_full_stream_is_brought_to_three_fifths() -> None:
    assert purge_up_to(state(900, 1, 90), 1_000, heard=90) == 31


def test_what_somebody_has_not_heard_stays() -> None:
    assert purge_up_to(state(1_000, 1, 100), 1_000, heard=7) == 8
    assert purge_up_to(state(1_000, 1, 100), 1_000, heard=0) is None


def test_a_stream_without_a_limit_is_never_full() -> None:
    assert purge_up_to(state(10**12, 1, 100), -1, heard=100) is None


@given(
    st.integers(0, 10**12),
    st.integers(1, 10**12),
    st.integers(0, 10**6),
    st.integers(1, 10**12),
    st.integers(0, 10**12),
)
def test_nothing_that_was_not_heard_ever_goes(held: int, first: int, count: int, room: int, heard: int) -> None:
    stays = purge_up_to(state(held, first, first + count), room, heard)
    if stays is not None:
        assert held > FULL * room
        assert first < stays <= heard + 1
        assert stays <= first + count + 1
        assert (stays - first) <= (1 - EMPTIER * room / held) * (count + 1) + 1
