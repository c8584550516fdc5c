"""Clusters of similar free text: HDBSCAN over embeddings, then one round of tidying by centroid. Pure.

The result does not depend on the order of the signals: they are sorted by id, distances are computed by brute force
in one thread, and no step draws random numbers. What all signals of a touchpoint have in common (their mean) is taken
away before clustering, since it says nothing about what sets them apart. HDBSCAN leaves much that is close to a
cluster as noise, and now and then takes in what is not; so signals join the nearest centroid from `JOINS` cosine on
and leave below `LEAVES`.
Both were chosen on planted corpora of the Banking77 and CLINC150 train splits (`bench/patterns.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from threadpoolctl import threadpool_limits

from services.pattern_detector.domain import Cluster, Signal

JOINS = 0.55
LEAVES = 0.45
COHESION = 0.3
"""Mean cosine between two signals of a cluster from which they are about one thing; below, about nothing."""

Labels = NDArray[np.intp]
Matrix = NDArray[np.float64]


def find(signals: Sequence[Signal], smallest: int) -> list[Cluster]:
    """Clusters of at least `smallest` signals among those that have a vector, in order of their first signal."""
    usable = sorted((s for s in signals if s.vector is not None and s.vector.any()), key=lambda s: s.signal_id)
    if len(usable) < smallest:
        return []
    vectors = np.stack([s.vector for s in usable if s.vector is not None]).astype(np.float64)
    labels = label(vectors, smallest)
    members: dict[int, list[UUID]] = {}
    for signal, one in zip(usable, labels, strict=True):
        if one >= 0:
            members.setdefault(int(one), []).append(signal.signal_id)
    return [Cluster("text", frozenset(ids)) for ids in members.values()]


def label(vectors: Matrix, smallest: int) -> Labels:
    """The cluster of each row of (n, d) unit vectors, −1 for none."""
    size = min_cluster_size(len(vectors), smallest)
    with threadpool_limits(limits=1):  # sums over several threads differ in their last digit from run to run
        labels = (
            _hdbscan(_unit(vectors - vectors.mean(axis=0)), size) if len(vectors) > size else np.full(len(vectors), -1)
        )
        if (labels < 0).all():
            # HDBSCAN never calls everything one cluster; a touchpoint with one kind of fault is exactly that.
            labels = np.zeros(len(vectors), dtype=np.intp)
        return _kept(vectors, _tidied(vectors, labels), smallest)


def min_cluster_size(n: int, smallest: int) -> int:
    """log2(n) − 4, at least `smallest`: 3 among a hundred signals, 6 among a thousand, 9 among ten thousand."""
    return max(smallest, round(math.log2(max(n, 1))) - 4)


def centroid(vectors: Sequence[NDArray[np.float32]]) -> NDArray[np.float32] | None:
    """The mean direction of unit vectors, of length one; None where there is none."""
    if not vectors:
        return None
    mean = np.stack(vectors).astype(np.float64).mean(axis=0)
    length = float(np.linalg.norm(mean))
    return (mean / length).astype(np.float32) if length > 0 else None


def _hdbscan(vectors: Matrix, size: int) -> Labels:
    model = HDBSCAN(min_cluster_size=size, min_samples=min(3, size), algorithm="brute", n_jobs=1, copy=False)
    labels: Labels = model.fit(vectors).labels_.astype(np.intp)
    return labels


def _tidied(vectors: Matrix, labels: Labels) -> Labels:
    names = np.unique(labels[labels >= 0])
    if not len(names):
        return labels
    centroids = _unit(np.stack([vectors[labels == name].mean(axis=0) for name in names]))
    similar = np.round(vectors @ centroids.T, 9)
    nearest = similar.argmax(axis=1)
    own = np.searchsorted(names, np.maximum(labels, names[0]))
    joined = np.where(similar.max(axis=1) >= JOINS, names[nearest], -1)
    stayed = np.where(similar[np.arange(len(labels)), own] >= LEAVES, labels, -1)
    tidied: Labels = np.where(labels < 0, joined, stayed)
    return tidied


def _kept(vectors: Matrix, labels: Labels, smallest: int) -> Labels:
    """Without clusters that are too small or about nothing."""
    names = np.unique(labels[labels >= 0])
    good = [name for name in names if _is_topic(vectors[labels == name], smallest)]
    kept: Labels = np.where(np.isin(labels, good), labels, -1)
    return kept


def _is_topic(members: Matrix, smallest: int) -> bool:
    n = len(members)
    if n < max(2, smallest):
        return False
    squared = float((members.mean(axis=0) ** 2).sum())
    return (n * squared - 1) / (n - 1) >= COHESION  # the mean cosine over pairs, without each with itself


def _unit(vectors: Matrix) -> Matrix:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Matrix = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled
