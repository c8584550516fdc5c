"""The configuration of the bus that is shipped is the one that the table of the contracts makes."""

from __future__ import annotations

from pathlib import Path

from libs.provisioning.nats_config import server_config

SHIPPED = Path("deploy/nats/accounts.conf")


def test_what_is_shipped_is_what_the_table_makes() -> None:
    assert SHIPPED.read_text("utf-8") == server_config(), "run `make generate`"
