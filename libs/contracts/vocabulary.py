"""Words and bounded types that several contracts share."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, Field, StringConstraints, WithJsonSchema

from libs.contracts.text import STORABLE

SignalType = Literal["flag", "eval_regression", "governance_finding", "low_confidence", "human_edit"]
Severity = Literal["critical", "high", "medium", "low"]
ActorKind = Literal["human", "machine"]
Scope = Literal["global", "workspace"]
Adapter = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$"),
    STORABLE,
    WithJsonSchema({"type": "string", "enum": ["feed_prompts", "skill_file", "inline", "agent_pack"]}),
]
"""Where a prompt lives: a name of `registered("adapters")`. The schema says those that were thought of when it landed;
a reader takes any, so that one more adapter needs no new event."""
Strategy = Literal["text", "categorical", "burst"]
PatternState = Literal["new", "growing", "steady", "receding", "resolved", "reopened"]
Verdict = Literal["better", "worse", "not_worse", "undecided"]
Split = Literal["dev", "test"]
ProposalState = Literal[
    "generated",
    "in_review",
    "approved",
    "rejected",
    "bad_signals",
    "stale",
    "failed",
    "revised",
    "activating",
    "activated",
    "rolled_back",
]
RejectReason = Literal["invalid", "unknown_touchpoint", "scope", "unresolvable", "bad_signals"]

TouchpointId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,119}$"), STORABLE]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200), STORABLE]
ShortText = Annotated[str, StringConstraints(max_length=2_000), STORABLE]
LongText = Annotated[str, StringConstraints(max_length=20_000), STORABLE]
AnswerText = Annotated[str, StringConstraints(max_length=50_000), STORABLE]
PromptText = Annotated[str, StringConstraints(max_length=262_144), STORABLE]
VersionRef = Annotated[str, StringConstraints(min_length=1, max_length=200), STORABLE]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$"), STORABLE]

# --- names that come with what they name ------------------------------------------------------------------

Kind = Literal["adapters", "buckets", "extractors", "metrics", "model_providers", "scanners", "tasks"]
PREFIX = "burnish."


@cache
def registered(kind: Kind) -> tuple[str, ...]:
    """What a touchpoint may name, sorted: the names of the entry points of `burnish.<kind>`. Imports none of them.

    Not types: a new name must not break an older reader; the registry refuses others. Raises RuntimeError where there
    is none at all, which is an installation without its metadata.
    """
    names = {entry.name for entry in entry_points(group=f"{PREFIX}{kind}")}
    if not names:
        raise RuntimeError(f"nothing is registered as {PREFIX}{kind}: install burnish anew (`make check`, or pip)")
    return tuple(sorted(names))


def _in_utc(value: datetime) -> datetime:
    try:
        value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("this instant lies outside the years 1 to 9999 in UTC") from error
    return value


Instant = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""A time with an offset that every service can store and compare."""
LedgerSeq = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""The number of a ledger entry: what a `bigint` holds."""
