"""Reads JSON that others wrote: bounded, and only what can be kept and sent on. Every refusal says what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 100
LARGEST_INTEGER = 2**63 - 1


class NotJson(ValueError):
    """It cannot be used as JSON; the text says why, without quoting more of it than a key."""


def read_json(raw: str | bytes) -> Any:
    """A document that somebody wrote by hand or by a program of theirs.

    Beside what JSON itself refuses: a key twice, a number that is none or that no database holds, half a character,
    and more than 100 levels. Raises `NotJson`.
    """
    document = parsed(raw, no_key_twice=True)
    require_storable(document)
    return document


def parsed(raw: str | bytes, *, no_key_twice: bool = False) -> Any:
    """A JSON document of at most 100 levels, in UTF-8. Raises `NotJson`."""
    try:
        text = raw.decode("utf-8-sig") if isinstance(raw, bytes) else raw
        document = json.loads(text, parse_constant=_constant, object_pairs_hook=_object if no_key_twice else None)
    except UnicodeDecodeError as error:
        raise NotJson(f"it is not UTF-8: {error.reason} at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise NotJson(f"it is not JSON: {error}") from error
    except NotJson:
        raise
    except ValueError as error:  # the interpreter reads no number of that many digits
        raise NotJson("a number has too many digits") from error
    except RecursionError as error:
        raise NotJson("it is nested too deeply") from error
    _require_flat(document)
    return document


def _constant(name: str) -> Any:
    raise NotJson(f"it is not JSON: {name} is no number there")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise NotJson(f"the key {twice[:100]!r} is there twice")
    return found


def _require_flat(document: Any) -> None:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [inner for one in level if isinstance(one, dict | list) for inner in _inside(one)]
        if not level:
            return
    raise NotJson(f"it is nested too deeply: at most {MAX_DEPTH} levels are read")


def require_storable(document: Any) -> None:
    """Refuse what no service could keep: half a character, a number without end or beyond 64 bits."""
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict | list):
            waiting += [*one, *one.values()] if isinstance(one, dict) else one
        elif isinstance(one, str) and not is_text(one):
            raise NotJson("a text has half a character (a lone surrogate); write whole characters")
        elif isinstance(one, float) and not math.isfinite(one):
            raise NotJson("a number is not finite")
        elif isinstance(one, int) and abs(one) > LARGEST_INTEGER:
            raise NotJson("a number is beyond 64 bits; write it as a text")


def is_text(text: str) -> bool:
    """Whether it can be sent and kept as UTF-8."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _inside(one: dict[str, Any] | list[Any]) -> list[Any]:
    return list(one.values()) if isinstance(one, dict) else one
