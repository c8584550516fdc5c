"""Signals: one piece of quality evidence about one touchpoint, from observation to processing."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated
from uuid import UUID, uuid5

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from libs.contracts.envelope import EVENT_NAMESPACE, EventData, Frozen
from libs.contracts.text import STORABLE, storable
from libs.contracts.vocabulary import (
    ActorKind,
    LongText,
    Name,
    ShortText,
    SignalType,
    TouchpointId,
    VersionRef,
)

MAX_PAYLOAD_BYTES = 65_536
MOST_ESCAPED = 12  # bytes of JSON for one character: a surrogate pair, escaped
FRAME_BYTES = 1_024  # of keys, nulls and the number
SourceKey = Annotated[str, StringConstraints(min_length=1, max_length=500), STORABLE]
_as_json = json.JSONEncoder(default=str).encode  # json.dumps would build one a call


@lru_cache(maxsize=1024)
def _signal_id(touchpoint_id: str, workspace_id: UUID | None, source_key: str) -> UUID:
    # Kept: an observation, the fact that follows and its event id ask for the same one within a batch.
    return uuid5(EVENT_NAMESPACE, f"signal|{touchpoint_id}|{workspace_id}|{source_key}")


class EvidenceRef(Frozen):
    """Where the evidence stands: a row of a source, or a case of a suite with the metric that moved."""

    source: Name
    id: Name | None = None
    suite: Name | None = None
    case_id: Name | None = None
    metric: Name | None = None
    delta: float | None = None

    @model_validator(mode="after")
    def _names_something(self) -> EvidenceRef:
        if self.id is None and self.case_id is None and self.metric is None:
            raise ValueError("evidence_ref needs `id`, or `case_id` or `metric` of an evaluation")
        return self


class SignalPayload(Frozen):
    """What was seen. Known keys are typed; others are kept as they are, up to 64 KiB in all."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    text: LongText | None = None
    reason: ShortText | None = None
    category: Name | None = None
    expected: ShortText | None = None
    got: ShortText | None = None
    confidence: float | None = Field(default=None, ge=0.0, le=1.0)
    case_id: Name | None = None

    @model_validator(mode="after")
    def _is_bounded_and_storable(self) -> SignalPayload:
        if self._is_surely_bounded():
            return self
        written = _as_json(self.model_dump(mode="json"))
        if len(written) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"payload is {len(written)} bytes, the limit is {MAX_PAYLOAD_BYTES}")
        extra = self.__pydantic_extra__
        if extra and ("\\u0000" in written or "\\ud" in written):  # NUL, or a half or whole pair: worth a look
            clean = {name: item for name, item in storable(extra).items() if name not in SignalPayload.model_fields}
            extra.clear()
            extra.update(clean)
        return self

    def _is_surely_bounded(self) -> bool:
        """Whether the typed texts alone are here, and so short that no way of escaping them reaches the limit."""
        if self.model_extra:
            return False
        texts = (self.text, self.reason, self.category, self.expected, self.got, self.case_id)
        return sum(len(text) for text in texts if text is not None) * MOST_ESCAPED < MAX_PAYLOAD_BYTES - FRAME_BYTES


class SignalFields(EventData):
    """The fields that an observed signal and a stored one have in common."""

    touchpoint_id: TouchpointId
    workspace_id: UUID | None = None
    signal_type: SignalType
    evidence_ref: EvidenceRef
    payload: SignalPayload
    actor_id: Name
    actor_kind: ActorKind
    version_ref: VersionRef | None = None
    source_key: SourceKey

    @property
    def signal_id(self) -> UUID:
        """UUIDv5 over touchpoint, workspace and source key: the same evidence is always the same signal."""
        return _signal_id(self.touchpoint_id, self.workspace_id, self.source_key)
