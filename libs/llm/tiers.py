"""Tiers: names for what a model is used for, mapped to models by configuration (`BURNISH_MODEL_TIERS`)."""

from __future__ import annotations

from libs.contracts.touchpoints import ModelSettings
from libs.llm.base import Model, ModelError
from libs.llm.settings import provider_settings

TIER = "tier"
ANALYSIS, DRAFTING, QUALITY = "analysis", "drafting", "quality"
TIERS = (ANALYSIS, DRAFTING, QUALITY)


def open_tier(name: str) -> Model:
    """The model that a tier is mapped to, under its own provider and name. Raises `ModelError`."""
    from libs.llm.providers import open_model

    mapped = tier(name)
    if mapped is None:
        raise ModelError(
            f'no model is configured for the tier {name!r}: set BURNISH_MODEL_TIERS, e.g. {{"{name}": '
            f'"anthropic/claude-sonnet-5-5"}}',
            retryable=False,
        )
    if mapped.provider == TIER:
        raise ModelError(f"BURNISH_MODEL_TIERS: the tier {name!r} must be mapped to a model", retryable=False)
    return open_model(mapped.provider, mapped.name)


def tier(name: str) -> ModelSettings | None:
    """The model that a tier is mapped to. Raises `ModelError` for a name that is none."""
    if name not in TIERS:
        raise ModelError(f"tier {name!r} is unknown: expected one of {', '.join(TIERS)}", retryable=False)
    mapped = provider_settings().model_tiers.get(name)
    return None if mapped is None else model_named(mapped, "BURNISH_MODEL_TIERS")


def model_named(text: str, setting: str) -> ModelSettings:
    """`provider/name` as a model; the name may hold further slashes. Raises `ModelError` naming the setting."""
    provider, slash, name = text.partition("/")
    if not slash or not provider or not name or len(text) > 200:
        raise ModelError(f"{setting}: a model is written as provider/name", retryable=False)
    return ModelSettings(provider=provider, name=name)
