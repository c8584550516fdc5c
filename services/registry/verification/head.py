"""The end of the ledger as a signed statement, so that somebody can keep it where the database's owner cannot reach."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from libs.auth.statements import StatementKey
from libs.contracts.versions import LedgerHead
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.registry.domain import GENESIS_SHA256, verify
from services.registry.store import verification as store
from services.registry.verification import rules


def load_key(path: Path | None) -> StatementKey | None:
    """The key that signs heads. Raises ValueError that names the setting."""
    if path is None:
        return None
    try:
        return StatementKey.load(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"BURNISH_LEDGER_KEY: {error}") from error


async def signed_head(db: Database, key: StatementKey | None, now: datetime) -> LedgerHead:
    """The head as it is now. Raises Refused 409 where the recorded end does not fit the last line."""
    async with db.connection() as conn, conn.transaction(isolation="repeatable_read", readonly=True):
        end = await store.end(conn)
        seq = 0 if end is None else max(end["seq"] or 0, 0)
        lines = await store.chain(conn, max(seq - 1, 0), 2)
        before = await store.chain(conn, seq - 2, 1) if seq > 1 else []
    previous = before[0]["entry_sha256"] if before else GENESIS_SHA256
    outcome = verify(lines, after=max(seq - 1, 0), previous_sha256=previous)
    fault = rules.of_end(end, outcome.entries, outcome.head_sha256)
    if end is None or fault is not None or not outcome.intact:
        told = outcome.problem or (fault.problem if fault else "")
        raise Refused("ledger_broken", f"{told}; `burnish ledger verify` looks at all of it")
    unsigned = LedgerHead(
        seq=seq,
        entries=end["lines"],
        entry_sha256=end["entry_sha256"],
        at=end["at"],
        signed_at=now,
        public_key=key.public if key else None,
    )
    return unsigned.model_copy(update={"signature": key.sign(unsigned.statement())}) if key else unsigned
