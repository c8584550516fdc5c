"""Models behind one small interface. `offline` is the embedded default."""

from typing import Any

from libs.llm.base import Model, ModelError, ModelReply, ModelRequest, PromptError, Usage
from libs.llm.offline import LabelSpec, OfflineModel, parse_labels
from libs.llm.prompt import join_parts

_PROVIDERS = {"offline": OfflineModel}


def model_from(provider: str = "offline", **options: Any) -> Model:
    """The model of a provider; `options` are the constructor arguments of its class.

    Raises `ModelError` naming what is unknown.
    """
    make = _PROVIDERS.get(provider)
    if make is None:
        known = ", ".join(_PROVIDERS)
        raise ModelError(f"model provider {provider!r} is unknown: expected one of {known}", retryable=False)
    try:
        return make(**options)
    except TypeError as error:
        reason = str(error).split("__init__() ")[-1]
        raise ModelError(f"model provider '{provider}': {reason}", retryable=False) from error


__all__ = [
    "LabelSpec",
    "Model",
    "ModelError",
    "ModelReply",
    "ModelRequest",
    "OfflineModel",
    "PromptError",
    "Usage",
    "join_parts",
    "model_from",
    "parse_labels",
]
