"""Which bucket feeds which workspace, and how its files are read."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from libs.contracts.envelope import EVENT_NAMESPACE

BucketName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
KindName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
WorkspaceName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


DEFAULT_WORKSPACE = "default"
OUR_OWN = frozenset({"uploads"})
"""Names of buckets that are there without a binding."""
ON_REQUEST = frozenset({"llm_extraction"})
"""Extractors that cost money: they read a file that somebody names, never what a bucket holds. What they are unsure of
(AMBIGUOUS) becomes no pair by itself."""


class Binding(BaseModel):
    """One bucket. What else is written beside these is for its kind, which refuses a key that it does not know."""

    model_config = ConfigDict(frozen=True, extra="allow")

    bucket: BucketName
    kind: KindName = "folder"
    workspace: WorkspaceName
    workspace_id: UUID | None = None
    extractor: str = "yaml_frontmatter_v1"
    curate_as_pair: bool = False
    trusted: bool = False
    report: bool = False
    touchpoint_id: str | None = Field(default=None, max_length=120)
    look_every_s: float | None = Field(default=None, gt=0, le=86_400)

    @property
    def options(self) -> dict[str, Any]:
        """What is written for its kind."""
        return dict(self.model_extra or {})

    @property
    def workspace_key(self) -> UUID:
        """The workspace's id: the one that is named, or else the one that its name stands for everywhere."""
        return self.workspace_id or workspace_id_of(self.workspace)


class Bindings(BaseModel):
    """All of them. Names are unique."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    buckets: tuple[Binding, ...] = ()

    @model_validator(mode="after")
    def _names_are_unique(self) -> Bindings:
        names = [binding.bucket for binding in self.buckets]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"buckets named twice: {', '.join(twice)}")
        if OUR_OWN & set(names):
            raise ValueError(f"no bucket may be named {', '.join(sorted(OUR_OWN))}: that one is there already")
        paid = next((binding for binding in self.buckets if binding.extractor in ON_REQUEST), None)
        if paid is not None:
            told = (
                f"{paid.extractor} reads a file on request only: `burnish qa ingest FILE --extractor {paid.extractor}`"
            )
            raise ValueError(f"bucket {paid.bucket}: {told}")
        return self


def workspace_id_of(name: str) -> UUID:
    """The id of a workspace that only has a name."""
    return uuid5(EVENT_NAMESPACE, f"workspace|{name}")
