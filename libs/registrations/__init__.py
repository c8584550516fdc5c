"""What can be added from outside, found by one registration each: an entry point, ours and others' alike.

A scanner, an adapter, a metric, a kind of task or a model provider is registered in a group `burnish.<kind>` of a
distribution's `pyproject.toml`. Its name there is the name that `touchpoints.yaml` gives, so the vocabulary is what is
registered (`libs.contracts.vocabulary.registered`); its value is loaded here, by the one service that uses it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from libs.contracts.vocabulary import PREFIX, Kind, registered

T = TypeVar("T")


class BadRegistration(Exception):
    """An entry point that cannot be used. The text names it, and what would be right."""


def load(kind: Kind, name: str, of: type[T]) -> T:
    """The object registered under this name. Raises `KeyError`, and `BadRegistration` for one that is no `of`."""
    return _loaded(kind, _entry(kind, name), of)


def load_class(kind: Kind, name: str, of: type[T]) -> type[T]:
    """The class registered under this name, a subclass of `of`. Raises as `load`."""
    entry = _entry(kind, name)
    found = _loaded(kind, entry, type)
    if not issubclass(found, of):
        raise BadRegistration(f"{_place(kind, entry)} is no subclass of {of.__module__}.{of.__qualname__}")
    return found


def all_of(kind: Kind, of: type[T]) -> dict[str, T]:
    """Everything registered, by name, in the order of names. Raises `BadRegistration`."""
    return {name: load(kind, name, of) for name in registered(kind)}


def classes_of(kind: Kind, of: type[T]) -> dict[str, type[T]]:
    """Every class registered, by name, in the order of names. Raises `BadRegistration`."""
    return {name: load_class(kind, name, of) for name in registered(kind)}


def _entry(kind: Kind, name: str) -> EntryPoint:
    found = list(entry_points(group=f"{PREFIX}{kind}", name=name))
    if not found:
        raise KeyError(name)
    if len(found) > 1:
        places = " and ".join(sorted(entry.value for entry in found))
        raise BadRegistration(f"{PREFIX}{kind}: {name} is registered twice, as {places}")
    return found[0]


def _loaded(kind: Kind, entry: EntryPoint, of: type[T]) -> T:
    try:
        found: Any = entry.load()
    except (ImportError, AttributeError) as error:
        raise BadRegistration(f"{_place(kind, entry)} cannot be imported: {error}") from error
    if not isinstance(found, of):
        raise BadRegistration(f"{_place(kind, entry)} is no {of.__module__}.{of.__qualname__}")
    return found


def _place(kind: Kind, entry: EntryPoint) -> str:
    return f"{PREFIX}{kind}: {entry.name} = {entry.value}"
