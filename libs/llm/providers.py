"""Model providers, each found by one registration: an entry point of the group `burnish.model_providers`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from libs.llm.base import Model, ModelError

GROUP = "burnish.model_providers"

OpenModel = Callable[[str, str], Model]
"""(provider, name of the model) → the model. Raises `ModelError` naming what is unknown."""


def known_providers() -> tuple[str, ...]:
    """The names under which providers are registered."""
    return tuple(sorted(_registered()))


def open_model(provider: str, name: str) -> Model:
    """The model of this name. An entry point is a function of the model's name that makes it, without I/O."""
    entry = _registered().get(provider)
    if entry is None:
        known = ", ".join(known_providers())
        raise ModelError(f"model provider {provider!r} is unknown: expected one of {known}", retryable=False)
    make: Callable[[str], Model] = entry.load()
    return make(name)


def _registered() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}
