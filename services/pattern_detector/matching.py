"""Stable ids: which of this run's text clusters are patterns that are known already. Pure.

Categorical patterns need no matching, their id follows from their key. Text clusters are matched by evidence first,
the best total over all pairs (the Hungarian method), and what is left by the direction of the centroid: a fault
whose old evidence has gone is still the same fault when it comes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID, uuid5

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from libs.contracts.envelope import EVENT_NAMESPACE
from services.pattern_detector.domain import Known, Vector

OVERLAP = 0.3
"""Jaccard index from which a cluster is a known pattern."""

CONTAINED = 0.5
"""Or this share of the smaller one is in the larger one: a pattern that grew fast, or whose evidence aged."""

SAME_DIRECTION = 0.9


def pattern_id(touchpoint_id: str, workspace_id: UUID | None, key: str) -> UUID:
    """The id of a categorical pattern, UUIDv5 over where it was found and its key."""
    return uuid5(EVENT_NAMESPACE, f"pattern|{touchpoint_id}|{workspace_id}|categorical|{key}")


def founded_id(touchpoint_id: str, workspace_id: UUID | None, evidence: frozenset[UUID], run_id: UUID) -> UUID:
    """The id of a new text pattern: UUIDv5 over the evidence it was founded on and the run that found it."""
    founding = ",".join(sorted(map(str, evidence)))
    return uuid5(EVENT_NAMESPACE, f"pattern|{touchpoint_id}|{workspace_id}|text|{run_id}|{founding}")


def match(
    clusters: Sequence[frozenset[UUID]], centroids: Sequence[Vector | None], known: Sequence[Known]
) -> Mapping[int, Known]:
    """The known pattern of each cluster (by position) that is one; every pattern is given at most once."""
    likeness = np.array([[_likeness(ids, pattern.evidence) for pattern in known] for ids in clusters])
    matched = _assigned(likeness, known)
    taken = {pattern.pattern_id for pattern in matched.values()}
    rest = [n for n in range(len(clusters)) if n not in matched]
    left = [pattern for pattern in known if pattern.pattern_id not in taken]
    cosines = np.array([[_cosine(centroids[n], pattern.centroid) for pattern in left] for n in rest])
    for position, pattern in _assigned(cosines, left).items():
        matched[rest[position]] = pattern
    return matched


def _assigned(likeness: NDArray[np.float64], known: Sequence[Known]) -> dict[int, Known]:
    if likeness.size == 0:
        return {}
    rows, columns = linear_sum_assignment(likeness, maximize=True)
    return {int(r): known[c] for r, c in zip(rows, columns, strict=True) if likeness[r, c] > 0}


def _likeness(one: frozenset[UUID], other: frozenset[UUID]) -> float:
    """The Jaccard index, or 0 where they are too different to be the same pattern."""
    both = len(one & other)
    if not both:
        return 0.0
    jaccard = both / (len(one) + len(other) - both)
    is_contained = both >= 2 and both / min(len(one), len(other)) >= CONTAINED
    return jaccard if jaccard >= OVERLAP or is_contained else 0.0


def _cosine(one: Vector | None, other: Vector | None) -> float:
    """The cosine of two unit vectors, or 0 below `SAME_DIRECTION`, and where one is missing or of another model."""
    if one is None or other is None or one.shape != other.shape:
        return 0.0
    similar = float(one @ other)
    return similar if similar >= SAME_DIRECTION else 0.0
