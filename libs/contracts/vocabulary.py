"""Words and bounded types that several contracts share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StringConstraints

SignalType = Literal["flag", "eval_regression", "governance_finding", "low_confidence", "human_edit"]
Severity = Literal["critical", "high", "medium", "low"]
ActorKind = Literal["human", "machine"]
Scope = Literal["global", "workspace"]
Adapter = Literal["feed_prompts", "skill_file", "inline", "agent_pack"]
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
SCANNERS = ("eval_regression", "low_confidence", "si_flag")
TASKS = ("classify",)
METRICS = ("accuracy", "macro_f1", "macro_precision", "macro_recall", "weighted_f1")
PROVIDERS = ("offline",)
"""What a touchpoint may name; the registry refuses others. Not types: a new name must not break an older reader."""
RejectReason = Literal["invalid", "unknown_touchpoint", "scope", "unresolvable", "bad_signals"]

TouchpointId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,119}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
ShortText = Annotated[str, StringConstraints(max_length=2_000)]
LongText = Annotated[str, StringConstraints(max_length=20_000)]
PromptText = Annotated[str, StringConstraints(max_length=262_144)]
VersionRef = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
