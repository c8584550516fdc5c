"""The small pure objects: redelivery, retry, faults."""

from __future__ import annotations

from random import Random

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from libs.service_kit.errors import Poison, Unavailable
from libs.service_kit.faults import Faults
from libs.service_kit.redelivery import LONGEST_WAIT_S, TRANSIENT, Again, Dead, Redelivery
from libs.service_kit.retry import Retry
from libs.service_kit.settings import KitSettings


@given(st.integers(1, 1_000))
def test_a_message_that_fails_by_itself_ends(deliveries: int) -> None:
    policy = Redelivery((1.0, 5.0))
    expected = Again((1.0, 5.0)[deliveries - 1]) if deliveries <= 2 else Dead()
    assert policy.after(ValueError(), deliveries) == expected
    assert policy.after(Poison("no"), deliveries) == Dead()


OUTAGES = [ConnectionError(), Unavailable(), asyncpg.CannotConnectNowError(), asyncpg.InternalClientError("state 12")]


@given(st.integers(1, 10_000), st.sampled_from(OUTAGES))
def test_an_outage_is_waited_for_and_the_wait_is_bounded(deliveries: int, error: Exception) -> None:
    outcome = Redelivery().after(error, deliveries)
    assert isinstance(outcome, Again)
    assert 0 < outcome.delay_s <= LONGEST_WAIT_S


def test_an_outage_of_a_day_kills_no_message() -> None:
    policy, waited, deliveries = Redelivery(), 0.0, 1
    while policy.before(deliveries) is None:
        outcome = policy.after(ConnectionError(), deliveries)
        assert isinstance(outcome, Again)
        waited += outcome.delay_s
        deliveries += 1
    assert waited > 86_400


def test_a_programming_error_is_no_outage() -> None:
    assert not issubclass(asyncpg.UndefinedTableError, TRANSIENT)
    assert not issubclass(asyncpg.UniqueViolationError, TRANSIENT)
    assert not issubclass(KeyError, TRANSIENT)


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_retry_waits_are_bounded_and_one_fewer_than_tries(attempts: int, seed: int) -> None:
    retry = Retry(attempts=attempts, base_s=0.01, cap_s=0.1)
    delays = list(retry.delays(Random(seed)))
    assert len(delays) == attempts - 1
    assert all(0.005 <= delay <= 0.1 for delay in delays)


def test_faults_are_off_by_default_and_names_are_checked() -> None:
    Faults.parse("").point("commit_ack")
    Faults.parse("commit_ack:0.0;seed=3").point("commit_ack")
    with pytest.raises(ValueError, match="names the point 'comit'"):
        Faults.parse("comit:0.5")


def test_a_pool_in_which_a_run_would_wait_for_itself_is_refused() -> None:
    with pytest.raises(ValidationError, match="pool_size"):
        KitSettings(database_url=SecretStr(""), pool_size=2)
