"""Text as contracts hold it: what every store and every screen can take, cleaned in one place, when it is read.

NUL is left out: JSON and Python have it, Postgres has no place for it. A lone surrogate, half of a character, is
refused: no encoding has it. Both hold for every text of a contract; a test walks them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, StringConstraints, WithJsonSchema

MAX_DEPTH = 200
MAX_VALUES = 200_000


def without_nul(text: str) -> str:
    """The text without NUL. For text that comes from no contract, e.g. from a model or a driver's error."""
    return text.replace("\x00", "") if "\x00" in text else text


def _without_nul(value: object) -> object:
    return without_nul(value) if isinstance(value, str) else value


STORABLE = BeforeValidator(_without_nul)
"""Stands beside the bounds of every text type, which refuse lone surrogates by themselves."""

Label = Annotated[str, StringConstraints(max_length=2_000), STORABLE, WithJsonSchema({"type": "string"})]
"""Text whose bound is not in the schema, since schemas without one have landed."""
Diff = Annotated[str, StringConstraints(max_length=2_000_000), STORABLE]


def storable(value: Any) -> Any:
    """JSON without NUL in its texts and keys. Raises ValueError for a lone surrogate, and for more than
    `MAX_DEPTH` levels or `MAX_VALUES` values."""
    left = iter(range(MAX_VALUES))
    return _storable(value, 0, left)


def _storable(value: Any, depth: int, left: Iterator[int]) -> Any:
    if next(left, None) is None:
        raise ValueError(f"more than {MAX_VALUES} values")
    if isinstance(value, str):
        return _text(value)
    if not isinstance(value, dict | list | tuple):
        return value
    if depth == MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {_storable(key, depth, left): _storable(item, depth + 1, left) for key, item in value.items()}
    return [_storable(item, depth + 1, left) for item in value]


def _text(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a lone surrogate at character {error.start}") from error
    return without_nul(text)


JsonObject = Annotated[dict[str, Any], AfterValidator(storable)]
"""An object of a shape that the contract does not know."""
