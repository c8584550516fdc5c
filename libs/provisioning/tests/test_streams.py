"""The size of each stream, and what is done about one that is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ByteSize

from libs.contracts.topology import STREAMS, Stream
from libs.provisioning.errors import SettingsError
from libs.provisioning.settings import MIB, SMALLEST, BusSettings
from libs.provisioning.streams import Found, plan, stream_config

GIB = 1024 * MIB
REFINEMENT = STREAMS[0]


def settings(**values: Any) -> BusSettings:
    return BusSettings(**{"bus_store": 512 * MIB, **values})


def found(stream: Stream, max_bytes: int, held: int = 0, **config: Any) -> dict[str, Found]:
    return {stream.name: Found({**stream_config(stream, max_bytes, 1), **config}, held)}


def test_the_parts_make_a_whole() -> None:
    assert sum(stream.percent for stream in STREAMS) == 100


@given(st.integers(64 * MIB, 1 << 50))
def test_the_streams_have_no_more_than_the_store(total: int) -> None:
    made = BusSettings(bus_store=ByteSize(total))
    assert made.total() <= total + len(STREAMS) * SMALLEST
    assert all(made.size_of(stream) >= SMALLEST for stream in STREAMS)


def test_a_single_stream_can_be_given_its_own_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_BUS_STORE", "2GiB")
    monkeypatch.setenv("BURNISH_BUS_STREAMS", '{"REFINEMENT": "8 GiB", "DLQ": 10485760}')
    monkeypatch.setenv("BURNISH_BUS_REPLICAS", "3")
    read = BusSettings.from_environment()
    sizes = {stream.name: read.size_of(stream) for stream in STREAMS}
    assert sizes["REFINEMENT"] == 8 * GIB
    assert sizes["DLQ"] == 10 * MIB
    assert sizes["WORK"] == 2 * GIB // 10
    assert {step.config["num_replicas"] for step in plan(STREAMS, read, {})} == {3}


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("BURNISH_BUS_STORE", "tiny", "BURNISH_BUS_STORE: "),
        ("BURNISH_BUS_STORE", "1MiB", "BURNISH_BUS_STORE: "),
        ("BURNISH_BUS_STORE", "-5", "BURNISH_BUS_STORE: "),
        ("BURNISH_BUS_STORE", "9999999999999999999999GiB", "BURNISH_BUS_STORE: "),
        ("BURNISH_BUS_STREAMS", "{", "BURNISH_BUS_STREAMS is not JSON"),
        ("BURNISH_BUS_STREAMS", '["QA"]', "BURNISH_BUS_STREAMS: "),
        ("BURNISH_BUS_STREAMS", '{"REFINEMENTS": "8GiB"}', "no stream 'REFINEMENTS'; there are REFINEMENT, QA"),
        ("BURNISH_BUS_STREAMS", '{"QA": "1KiB"}', "QA gets 1.0KiB"),
        ("BURNISH_BUS_REPLICAS", "2", "BURNISH_BUS_REPLICAS: .*1, 3 or 5"),
        ("BURNISH_BUS_REPLICAS", "7", "BURNISH_BUS_REPLICAS: "),
        ("BURNISH_BUS_REPLICAS", "three", "BURNISH_BUS_REPLICAS: "),
    ],
)
def test_a_wrong_size_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, told: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=told):
        BusSettings.from_environment()


def test_what_is_as_it_should_be_is_left_alone() -> None:
    (step,) = plan([REFINEMENT], settings(), found(REFINEMENT, 256 * MIB, held=200 * MIB))
    assert (step.action, step.reserves, step.remark) == ("keep", 0, "")


def test_what_only_the_server_sets_is_no_difference() -> None:
    (step,) = plan([REFINEMENT], settings(), found(REFINEMENT, 256 * MIB, max_msg_size=-1, sealed=False))
    assert step.action == "keep"


def test_a_large_stream_is_made_smaller_when_its_content_fits() -> None:
    (step,) = plan([REFINEMENT], settings(), found(REFINEMENT, 8 * GIB, held=256 * MIB))
    assert (step.action, step.config["max_bytes"], step.remark) == ("update", 256 * MIB, "")
    assert step.reserves == 256 * MIB - 8 * GIB


@pytest.mark.parametrize("before", [8 * GIB, -1])
def test_a_large_stream_whose_content_does_not_fit_is_left_and_said(before: int) -> None:
    (step,) = plan([REFINEMENT], settings(), found(REFINEMENT, before, held=256 * MIB + 1))
    assert step.config["max_bytes"] == before
    assert step.remark.startswith("REFINEMENT holds 256.0MiB, more than the 256.0MiB it is to have: it keeps ")


def test_what_else_changed_is_brought_along_all_the_same() -> None:
    (step,) = plan([REFINEMENT], settings(), found(REFINEMENT, 8 * GIB, held=GIB, discard="old", max_age=1))
    assert (step.action, step.config["discard"], step.config["max_bytes"]) == ("update", "new", 8 * GIB)


def test_room_is_given_back_before_any_is_taken() -> None:
    there = {**found(STREAMS[2], 16 * GIB), **found(STREAMS[1], 64 * MIB)}
    steps = plan(STREAMS, settings(bus_store=GIB), there)
    assert next(step.stream for step in steps) == STREAMS[2].name
    assert [step.reserves for step in steps] == sorted(step.reserves for step in steps)
