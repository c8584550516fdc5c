"""Touchpoints: what `touchpoints.yaml` says, and the event that carries it to every service."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, get_args

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints

from libs.contracts.envelope import Frozen
from libs.contracts.text import STORABLE, JsonObject
from libs.contracts.vocabulary import Adapter, Name, PromptText, Scope, ShortText, TouchpointId

Branch = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=200), STORABLE]
RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=500), STORABLE]


class Strict(Frozen):
    """Configuration that a person writes: a key that is not known is a mistake, not an extension."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Storage(Strict):
    """Where the prompt lives. What of it an adapter needs, the adapter says itself; the registry refuses the rest."""

    adapter: Adapter
    repository: Annotated[str, StringConstraints(max_length=1000), STORABLE] | None = None
    branch: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=200), STORABLE] = (
        "main"
    )
    paths: tuple[RelativePath, ...] = ()
    initial_text: PromptText | None = None
    post_apply: tuple[ShortText, ...] = ()


class SignalSource(Strict):
    """One scanner of a touchpoint with its options, e.g. `{scanner: low_confidence, threshold: 0.5}`."""

    scanner: Name
    options: JsonObject = Field(default_factory=dict)
    every_s: float = Field(default=60.0, ge=1.0, le=86_400.0)


class SuiteSettings(Strict):
    """How the touchpoint's gold standard is judged. `primary_metric` and `margin` are declared before any run."""

    task: Name = "classify"
    primary_metric: Name = "accuracy"
    metrics: tuple[Name, ...] = ("accuracy", "macro_f1")
    margin: float = Field(default=0.01, ge=0.0, lt=1.0)


class Thresholds(Strict):
    """The gates of the pattern detector; the defaults are those of the specification."""

    min_evidence: int = Field(default=3, ge=2)
    single_actor_evidence: int = Field(default=5, ge=2)
    min_actors: int = Field(default=2, ge=2)
    auto_human_actors: int = Field(default=3, ge=1)
    auto_machine_cases: int = Field(default=5, ge=1)
    max_open_patterns: int = Field(default=200, ge=1, le=2_000)


class ModelSettings(Strict):
    """Which model answers for the touchpoint in evaluations and writes its proposals."""

    provider: Name = "offline"
    name: Name = "offline"
    parameters: JsonObject = Field(default_factory=dict)


class Approvals(Strict):
    """How many named people must approve, and whether an author may approve their own proposal."""

    required: int = Field(default=1, ge=1, le=10)
    four_eyes: bool = True


class Touchpoint(Strict):
    """One AI feature whose behaviour a prompt sets."""

    id: TouchpointId
    scope: Scope
    description: ShortText = ""
    storage: Storage
    suite: SuiteSettings | None = None
    signals: tuple[SignalSource, ...] = ()
    thresholds: Thresholds = Thresholds()
    model: ModelSettings = ModelSettings()
    approvals: Approvals = Approvals()
    owners: tuple[Name, ...] = ()
    prompt_globs: tuple[ShortText, ...] = ()
    active: bool = True


def known_keys(value: object, model: type[Strict] = Touchpoint) -> object:
    """The value without the keys that this code does not know. A mistake is refused where a person makes it; on the
    bus an unknown key comes from a newer sender."""
    if isinstance(value, list | tuple):
        return [known_keys(item, model) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: next((known_keys(item, inner) for inner in _strict_in(model.model_fields[name].annotation)), item)
        for name, item in value.items()
        if name in model.model_fields
    }


def _strict_in(annotation: object) -> Iterator[type[Strict]]:
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for argument in get_args(annotation):
        yield from _strict_in(argument)


HeardTouchpoint = Annotated[Touchpoint, BeforeValidator(known_keys)]
"""A touchpoint as another service tells it."""
