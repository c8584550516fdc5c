"""What a model's calls cost, and what it takes: a dated table. A model that is in no table has no price."""

from __future__ import annotations

import tomllib
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from libs.files import UnreadableFile, read_text
from libs.llm.base import ModelError

TABLE = Path(__file__).with_name("prices.toml")
MAX_TABLE_BYTES = 1_000_000
MILLION = Decimal(1_000_000)

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Tokens = Annotated[int, Field(ge=0, le=100_000_000, strict=True)]


class Counted(BaseModel):
    """The tokens of one call: input that was new, came from the provider's cache or was put into it, and output."""

    model_config = ConfigDict(frozen=True)

    input: Tokens
    output: Tokens
    cached: Tokens = 0
    cache_written: Tokens = 0

    @property
    def whole_input(self) -> int:
        """Input of every kind."""
        return self.input + self.cached + self.cache_written


class ModelFacts(BaseModel):
    """One row of the table; `prices.toml` says what each field means. Prices are USD per million tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Usd
    output: Usd
    cached_input: Usd | None = None
    cache_write: Usd | None = None
    above_input_tokens: Annotated[int, Field(gt=0)] | None = None
    input_above: Usd | None = None
    output_above: Usd | None = None
    sampling: bool = True
    thinking_tokens: int = Field(default=0, ge=0, le=100_000)
    as_of: date
    source: Annotated[str, StringConstraints(min_length=1, max_length=500)]

    @model_validator(mode="after")
    def _whole_band(self) -> ModelFacts:
        if len({field is None for field in (self.above_input_tokens, self.input_above, self.output_above)}) > 1:
            raise ValueError("above_input_tokens, input_above and output_above come together")
        return self

    def usd(self, counted: Counted) -> Decimal:
        """What a call with these tokens costs."""
        times_input, output = self._rates(counted.whole_input)
        cached = self.input if self.cached_input is None else self.cached_input
        written = self.input if self.cache_write is None else self.cache_write
        spent_on_input = counted.input * self.input + counted.cached * cached + counted.cache_written * written
        return (spent_on_input * times_input + counted.output * output) / MILLION

    def most_usd(self, input_tokens: int, output_tokens: int) -> Decimal:
        """What a call with at most so many tokens costs at most, whatever of its input is cached."""
        input_rate = max(self.input, self.cached_input or Decimal(), self.cache_write or Decimal())
        times_input, output = self._rates(input_tokens)
        input_rate *= max(times_input, Decimal(1))
        return (input_tokens * input_rate + output_tokens * max(output, self.output)) / MILLION

    def _rates(self, input_tokens: int) -> tuple[Decimal, Decimal]:
        """By how much input of every kind is dearer at this length, and the price of output."""
        if self.above_input_tokens is None or input_tokens <= self.above_input_tokens:
            return Decimal(1), self.output
        assert self.input_above is not None and self.output_above is not None
        return (self.input_above / self.input if self.input else Decimal(1)), self.output_above


class Table(BaseModel):
    """Facts by the name of a provider and of its model."""

    model_config = ConfigDict(frozen=True)

    rows: dict[str, dict[str, ModelFacts]]

    def of(self, provider: str, name: str) -> ModelFacts | None:
        """The facts of a model; None where its price is not known."""
        return self.rows.get(provider, {}).get(name)


@cache
def published() -> Table:
    """The table that comes with this code: prices at the providers' own addresses."""
    return read_table(TABLE)


def read_table(path: Path | str) -> Table:
    """The table in a file. Raises `ModelError` that names the file and the field."""
    try:
        rows: Any = tomllib.loads(read_text(path, MAX_TABLE_BYTES), parse_float=Decimal)
    except UnreadableFile as error:
        raise ModelError(f"the price table cannot be read: {error}", retryable=False) from error
    except tomllib.TOMLDecodeError as error:
        raise ModelError(f"the price table {Path(path).name} is no TOML: {error}", retryable=False) from error
    try:
        return Table(rows=rows)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(step) for step in first["loc"][1:])
        raise ModelError(f"the price table {Path(path).name}: {field}: {first['msg']}", retryable=False) from None
