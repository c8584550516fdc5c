"""Model providers, each found by one registration: an entry point of the group `burnish.model_providers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from libs.contracts.vocabulary import registered
from libs.llm.base import Model, ModelError
from libs.registrations import load

OpenModel = Callable[[str, str], Model]
"""(provider, name of the model) → the model. Raises `ModelError` naming what is unknown."""


def known_providers() -> tuple[str, ...]:
    """The names under which providers are registered."""
    return registered("model_providers")


def open_model(provider: str, name: str) -> Model:
    """The model of this name. What is registered is a function of the model's name that makes it, without I/O."""
    try:
        make = cast(Callable[[str], Model], load("model_providers", provider, object))
    except KeyError:
        known = ", ".join(known_providers())
        raise ModelError(f"model provider {provider!r} is unknown: expected one of {known}", retryable=False) from None
    return make(name)
