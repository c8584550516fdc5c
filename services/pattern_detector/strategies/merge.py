"""One list out of several strategies, in which every signal is evidence once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from services.pattern_detector.domain import Cluster, Signal

SAME = 0.5
"""Jaccard index from which a text cluster and a categorical group are the same fault."""


def merge(
    groups: Sequence[Cluster], clusters: Sequence[Cluster], signals: Mapping[UUID, Signal], smallest: int
) -> list[Cluster]:
    """Disjoint clusters: `groups` (categorical, disjoint) keep their signals; of `clusters` (text, disjoint) one
    that mostly coincides with a group joins it, and the others keep what no group has, if that is `smallest`."""
    joined = list(groups)
    alone: list[Cluster] = []
    owned = frozenset[UUID]().union(*(group.signal_ids for group in groups))
    for cluster in clusters:
        free = cluster.signal_ids - owned
        twin = _twin(cluster, groups)
        if twin is not None:
            agreeing = frozenset(i for i in free if not contradicts(signals[i], groups[twin]))
            joined[twin] = replace(joined[twin], signal_ids=joined[twin].signal_ids | agreeing)
        elif len(free) >= smallest:
            alone.append(replace(cluster, signal_ids=free))
    return [*joined, *alone]


def contradicts(signal: Signal, group: Cluster) -> bool:
    """The signal names something else than the group stands for; one that names nothing agrees."""
    if group.field == "pair":
        expected_differs = signal.expected is not None and signal.expected != group.expected
        return expected_differs or (signal.got is not None and signal.got != group.got)
    value = signal.fields.get(group.field or "")
    return value is not None and value != group.value


def _twin(cluster: Cluster, groups: Sequence[Cluster]) -> int | None:
    """The group with the largest Jaccard index, from `SAME` on."""
    shared = [(_jaccard(cluster.signal_ids, group.signal_ids), -n) for n, group in enumerate(groups)]
    best, position = max(shared, default=(0.0, 0))
    return -position if best >= SAME else None


def _jaccard(one: frozenset[UUID], other: frozenset[UUID]) -> float:
    both = len(one & other)
    return both / (len(one) + len(other) - both) if both else 0.0
