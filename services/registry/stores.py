"""Chooses the store of a touchpoint's prompt. No other module asks for the name of an adapter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from libs.contracts.touchpoints import Storage, Touchpoint
from libs.contracts.vocabulary import registered
from libs.registrations import BadRegistration, load_class
from services.registry.adapters.base import ImmediateStore, MergedStore, Misfit, StorageError, Store


class MergedStores:
    """The stores that a person merges into. `roots`: the folders in which repositories may lie."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)

    def of(self, touchpoint: Touchpoint) -> MergedStore:
        """The store of a registered touchpoint. Raises StorageError where its place is not allowed, or it has none."""
        store = kind(touchpoint.storage.adapter).of(touchpoint.storage, self._roots)
        if not isinstance(store, MergedStore):
            raise StorageError("nothing_to_merge", f"The text of {touchpoint.id} changes at once.")
        return store


def immediate(touchpoint: Touchpoint) -> ImmediateStore | None:
    """The store of a registered touchpoint whose text changes at once; None where a person merges."""
    store = kind(touchpoint.storage.adapter)
    return store.of(touchpoint.storage, ()) if issubclass(store, ImmediateStore) else None


@cache
def kind(adapter: str) -> type[ImmediateStore] | type[MergedStore]:
    """The class of an adapter's stores. Raises KeyError for a name that is not registered."""
    found = load_class("adapters", adapter, Store)  # type: ignore[type-abstract]
    if not issubclass(found, ImmediateStore | MergedStore):
        raise BadRegistration(f"burnish.adapters: {adapter} is neither an ImmediateStore nor a MergedStore")
    return found


def is_immediate(adapter: str) -> bool:
    """Whether its stores change at once."""
    return issubclass(kind(adapter), ImmediateStore)


def misfits(touchpoint: Touchpoint) -> Iterator[Misfit]:
    """What of a touchpoint's configuration its adapter cannot use."""
    adapter = touchpoint.storage.adapter
    names = registered("adapters")
    if adapter not in names:
        yield Misfit("storage.adapter", f"{adapter} cannot be registered.", f"Use {' and '.join(names)}.")
        return
    yield from kind(adapter).misfits(touchpoint)


def moved(before: Storage, after: Storage) -> bool:
    """Whether the prompt is read from somewhere else now."""
    return before.adapter != after.adapter or kind(after.adapter).location(before) != kind(after.adapter).location(
        after
    )
