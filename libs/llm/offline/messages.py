"""What a proposal is asked for with, and what comes back: the input and the data of the task `propose`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from libs.contracts.prompts import PromptPart


class Evidence(BaseModel):
    """One signal's text and, where known, which label was right and which was given."""

    model_config = ConfigDict(frozen=True)
    signal_id: str
    text: str
    expected: str | None = None
    got: str | None = None


class PatternBrief(BaseModel):
    """The pattern that a proposal is asked for."""

    model_config = ConfigDict(frozen=True)
    title: str = ""
    strategy: str = ""
    expected: str | None = None
    got: str | None = None
    evidence: tuple[Evidence, ...] = ()


class DevCase(BaseModel):
    """One case of the suite's dev split."""

    model_config = ConfigDict(frozen=True)
    input: str
    expected: str


class ProposeInput(BaseModel):
    """`ModelRequest.input` of the task `propose`, as JSON."""

    model_config = ConfigDict(frozen=True)
    touchpoint_id: str
    prompt: tuple[PromptPart, ...]
    pattern: PatternBrief
    dev_cases: tuple[DevCase, ...] = ()


class HunkDraft(BaseModel):
    """One replaced passage: `before` occurs exactly once in the part at `path`, and in no other part."""

    model_config = ConfigDict(frozen=True)
    path: str
    before: str
    after: str
    signal_ids: tuple[str, ...]


class Impact(BaseModel):
    """What the writer expects of a metric; `confidence` is between 0 and 1."""

    model_config = ConfigDict(frozen=True)
    metric: str
    direction: Literal["increase", "decrease"]
    magnitude: Literal["small", "medium", "large"]
    confidence: float


class ProposalDraft(BaseModel):
    """`ModelReply.data` of the task `propose`. No hunks means that there is nothing to propose, and the
    rationale says why."""

    model_config = ConfigDict(frozen=True)
    hunks: tuple[HunkDraft, ...] = ()
    rationale: str
    expected_impact: tuple[Impact, ...] = ()
    risks: tuple[str, ...] = ()
    review_guidance: str = ""
