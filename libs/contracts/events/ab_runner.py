"""A/B runs and evaluations: asked for, shared out, and what came of them."""

from __future__ import annotations

from typing import ClassVar, Literal
from uuid import UUID

from pydantic import Field

from libs.contracts.envelope import EventData
from libs.contracts.evaluations import MetricComparison, Variant, VariantRef
from libs.contracts.text import Label
from libs.contracts.vocabulary import (
    Instant,
    Name,
    Severity,
    Sha256,
    ShortText,
    Split,
    TouchpointId,
    Verdict,
    VersionRef,
)


class AbRequestedV1(EventData):
    """A person asks for both variants to be run over the same cases."""

    type: ClassVar[str] = "refinement.ab.requested.v1"

    run_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    variant_a: Variant
    variant_b: Variant
    split: Split = "test"
    case_ids: tuple[Name, ...] = Field(default=(), max_length=10_000)
    requested_by: Name

    def natural_key(self) -> str:
        return str(self.run_id)


class AbRequestedV2(EventData):
    """A person asks for both variants to be run over the same cases. The runner fetches the texts from their owners."""

    type: ClassVar[str] = "refinement.ab.requested.v2"

    run_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    variant_a: VariantRef
    variant_b: VariantRef
    split: Split = "test"
    case_ids: tuple[Name, ...] = Field(default=(), max_length=10_000)
    requested_by: Name

    def natural_key(self) -> str:
        return str(self.run_id)


class AbExecutedV1(EventData):
    """An A/B run ended. The flips are counts here; the case ids are with the runner."""

    type: ClassVar[str] = "refinement.ab.executed.v1"

    run_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    proposal_id: UUID | None = None
    status: Literal["completed", "failed"]
    a_sha256: Sha256
    b_sha256: Sha256
    suite_sha256: Sha256 | None = None
    verdict: Verdict | None = None
    metrics: tuple[MetricComparison, ...] = ()
    gained: int = Field(default=0, ge=0)
    lost: int = Field(default=0, ge=0)
    n: int = Field(default=0, ge=0)
    reason: ShortText = ""
    executed_at: Instant

    def natural_key(self) -> str:
        return str(self.run_id)


class ShardRequestedV1(EventData):
    """One shard of a run: these cases with this variant. Work of the A/B runner for itself."""

    type: ClassVar[str] = "work.shard.requested.v1"

    run_id: UUID
    shard: int = Field(ge=0)

    def natural_key(self) -> str:
        """The run and the shard."""
        return f"{self.run_id}|{self.shard}"


class EvalRequestedV1(EventData):
    """Someone asks for one variant to be run against its baseline."""

    type: ClassVar[str] = "refinement.eval.requested.v1"

    run_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    variant: Variant
    split: Split = "test"
    requested_by: Name

    def natural_key(self) -> str:
        return str(self.run_id)


class EvalRegressedV1(EventData):
    """One metric fell below its baseline by more than its variance band."""

    type: ClassVar[str] = "refinement.eval.regressed.v1"

    run_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    metric: Name
    baseline: float
    value: float
    delta: float
    severity: Severity
    version_ref: VersionRef | None = None
    failing_case_ids: tuple[Name, ...] = Field(default=(), max_length=200)

    def natural_key(self) -> str:
        """The run and the metric."""
        return f"{self.run_id}|{self.metric}"


class BaselinePromotedV1(EventData):
    """A run's result became the baseline of its touchpoint."""

    type: ClassVar[str] = "refinement.baseline.promoted.v1"

    baseline_id: UUID
    run_id: UUID
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    content_sha256: Sha256
    suite_sha256: Sha256
    metrics: dict[Label, float]
    promoted_by: Name

    def natural_key(self) -> str:
        return str(self.baseline_id)
