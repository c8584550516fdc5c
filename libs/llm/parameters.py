"""What a touchpoint may set of its model's calls (`model.parameters`), applied in one place for every task. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from libs.llm.base import ModelError, ModelRequest


class CallParameters(BaseModel):
    """The parameters of calls that answer a case. Writing a proposal takes the temperature from here, and as many
    output tokens as the writer asks for: a limit that fits a label would cut every proposal short. `effort`, of models
    that think, holds for both; what thinking may take is beside `max_output_tokens`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=0.0, ge=0.0, le=2.0)
    max_output_tokens: int = Field(default=64, gt=0, le=100_000)
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None


def parameters_of(given: Mapping[str, Any]) -> CallParameters:
    """The parameters as a touchpoint gives them. Raises `ModelError` naming the field that is wrong."""
    try:
        return CallParameters.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise ModelError(f"model parameter {field!r}: {first['msg']}", retryable=False) from None


def applied(parameters: CallParameters, request: ModelRequest) -> ModelRequest:
    """The request with the parameters of its touchpoint."""
    if request.task == "classify":
        return request.model_copy(update=parameters.model_dump())
    return request.model_copy(update={"temperature": parameters.temperature, "effort": parameters.effort})
