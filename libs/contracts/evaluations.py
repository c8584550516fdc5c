"""Suites, A/B runs, evaluations, baselines and regressions."""

from __future__ import annotations

from decimal import Decimal
from typing import Literal
from uuid import UUID

from pydantic import Field, model_validator

from libs.contracts.envelope import Frozen
from libs.contracts.prompts import PromptPart
from libs.contracts.vocabulary import (
    Instant,
    LongText,
    Name,
    Sha256,
    ShortText,
    Split,
    TouchpointId,
    Verdict,
    VersionRef,
)


class Case(Frozen):
    """One item of a suite: an input and the output that is right for it."""

    case_id: Name
    input: LongText
    expected: ShortText
    split: Split = "test"
    cluster: Name | None = None


class WaitingCase(Frozen):
    """A published pair of the library that waits to be a case of its touchpoint's next suite."""

    pair_id: UUID
    workspace_id: UUID
    touchpoint_id: TouchpointId
    version: int
    input: ShortText
    answer_preview: ShortText
    published_at: Instant


class SuiteSummary(Frozen):
    """A suite as it is listed. `suite_sha256` is over every case, so it names exactly this content."""

    touchpoint_id: TouchpointId
    suite_sha256: Sha256
    cases: int
    dev_cases: int
    test_cases: int
    labels: int
    imported_at: Instant
    smallest_detectable_effect: float | None = None


class Variant(Frozen):
    """A prompt text that is being evaluated, and where it came from."""

    label: Name
    parts: tuple[PromptPart, ...] = Field(min_length=1)
    content_sha256: Sha256
    version_ref: VersionRef | None = None
    proposal_id: UUID | None = None


class VariantRef(Frozen):
    """A text to be evaluated, by where it is kept and its hash: one of a version and a proposal is named."""

    label: Name
    content_sha256: Sha256
    version_ref: VersionRef | None = None
    proposal_id: UUID | None = None

    @model_validator(mode="after")
    def _one_place(self) -> VariantRef:
        if (self.version_ref is None) == (self.proposal_id is None):
            raise ValueError("give one of `version_ref` and `proposal_id`")
        return self


class MetricComparison(Frozen):
    """One metric of both variants; `delta` is b − a and `ci95` its own two-sided 95 % interval.

    The verdict reads `ci_verdict`, which is at least as wide: it is adjusted for the number of metrics (Holm) and
    excludes zero exactly when `p_adjusted` is at most 0.05.
    """

    name: Name
    a: float
    b: float
    delta: float
    ci95: tuple[float, float]
    effect_size: float | None = None
    effect_size_name: Name | None = None
    p_value: float | None = None
    ci_verdict: tuple[float, float] | None = None
    p_adjusted: float | None = None
    method: ShortText
    is_primary: bool = False
    note: ShortText = ""


class Flips(Frozen):
    """The cases whose answer turned right (`gained`) and wrong (`lost`) from A to B."""

    gained: tuple[Name, ...] = ()
    lost: tuple[Name, ...] = ()


class LabelComparison(Frozen):
    """One expected label of both variants over its `support` cases. For reading; no verdict is drawn from it."""

    label: ShortText
    support: int
    precision_a: float
    precision_b: float
    recall_a: float
    recall_b: float


class AbReport(Frozen):
    """A run and its outcome, as reports and pages show it.

    An answer is one case with one variant: `cases_total` of them are wanted, `cases_done` are there, of which
    `cache_hits` were paid for by an earlier run and `model_calls` by this one. `n` cases were compared. Where runs are
    listed, `flips` and `labels` are left out; `gained` and `lost` count the flips.
    """

    run_id: UUID
    kind: Literal["ab", "eval"] = "ab"
    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    proposal_id: UUID | None = None
    status: Literal["queued", "running", "completed", "failed"]
    label_a: Name
    label_b: Name
    a_sha256: Sha256
    b_sha256: Sha256
    suite_sha256: Sha256 | None = None
    split: Split = "test"
    n: int = 0
    cases_done: int = 0
    cases_total: int = 0
    cache_hits: int = 0
    model_calls: int = 0
    usd: Decimal = Decimal(0)
    verdict: Verdict | None = None
    reason: ShortText = ""
    metrics: tuple[MetricComparison, ...] = ()
    flips: Flips = Flips()
    gained: int = 0
    lost: int = 0
    labels: tuple[LabelComparison, ...] = ()
    cases_needed: int | None = None
    smallest_detectable_effect: float | None = None
    requested_by: Name
    requested_at: Instant
    finished_at: Instant | None = None
    error: ShortText | None = None
