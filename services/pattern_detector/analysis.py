"""From signals and known patterns of one scope to the patterns as they should stand. Pure; the core of a run.

A scope is one touchpoint, or one workspace of it: evidence of different workspaces is never mixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from libs.contracts.touchpoints import Thresholds
from services.pattern_detector import domain, matching, titles
from services.pattern_detector.domain import Cluster, Known, Pattern, Signal, Standing, Vector, Weighed
from services.pattern_detector.strategies import categorical, text
from services.pattern_detector.strategies.merge import merge

UNPLACED = 0.5
"""Centrality of evidence without a vector."""


@dataclass(frozen=True)
class Scope:
    """What one analysis is about, and by which rules and at what time."""

    touchpoint_id: str
    workspace_id: UUID | None
    run_id: UUID
    thresholds: Thresholds
    now: datetime
    trusted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Draft:
    """A pattern before it is judged."""

    pattern_id: UUID
    cluster: Cluster
    title: str
    known: Known | None


def analyse(scope: Scope, signals: Sequence[Signal], known: Sequence[Known]) -> list[Pattern]:
    """Every pattern with evidence, surfaced or not, and every surfaced one that lost its evidence."""
    ordered = sorted(signals, key=lambda signal: signal.signal_id)
    pool = {signal.signal_id: signal for signal in ordered}
    standing = {pattern.key for pattern in known if pattern.key and pattern.standing.state}
    groups = categorical.find(ordered, scope.now, standing)
    smallest = max(2, scope.thresholds.min_evidence)
    clusters = merge(groups, text.find(ordered, smallest), pool, smallest)
    drafts = _identified(scope, clusters, pool, known)
    patterns = [_judged(scope, draft, pool) for draft in drafts]
    return _within_limit(patterns, scope.thresholds.max_open_patterns)


# --- identity ---------------------------------------------------------------------------------------------


def _identified(
    scope: Scope, clusters: Sequence[Cluster], pool: Mapping[UUID, Signal], known: Sequence[Known]
) -> list[_Draft]:
    by_id = {pattern.pattern_id: pattern for pattern in known}
    drafts = [_by_key(scope, c, by_id) for c in clusters if c.key is not None]
    drafts += _by_evidence(scope, [c for c in clusters if c.key is None], pool, known)
    drafts = _with_older_evidence(drafts, pool)
    return [*drafts, *_left_over(drafts, pool, known)]


def _by_key(scope: Scope, cluster: Cluster, by_id: Mapping[UUID, Known]) -> _Draft:
    identity = matching.pattern_id(scope.touchpoint_id, scope.workspace_id, cluster.key or "")
    return _Draft(identity, cluster, titles.categorical_title(cluster), by_id.get(identity))


def _by_evidence(
    scope: Scope, clusters: Sequence[Cluster], pool: Mapping[UUID, Signal], known: Sequence[Known]
) -> list[_Draft]:
    members = [[pool[i] for i in sorted(cluster.signal_ids)] for cluster in clusters]
    centroids = [_centroid(signals) for signals in members]
    candidates = sorted((p for p in known if p.strategy == "text"), key=lambda p: p.pattern_id)
    matched = matching.match([c.signal_ids for c in clusters], centroids, candidates)
    told = titles.text_titles(members, list(pool.values()))
    drafts = []
    for n, (cluster, signals) in enumerate(zip(clusters, members, strict=True)):
        before = matched.get(n)
        identity = (
            before.pattern_id
            if before
            else matching.founded_id(scope.touchpoint_id, scope.workspace_id, cluster.signal_ids, scope.run_id)
        )
        labelled = replace(
            cluster,
            expected=titles.agreed([signal.expected for signal in signals]),
            got=titles.agreed([signal.got for signal in signals]),
        )
        title = before.title if before and before.standing.state else told[n]
        drafts.append(_Draft(identity, labelled, title, before))
    return drafts


def _with_older_evidence(drafts: Sequence[_Draft], pool: Mapping[UUID, Signal]) -> list[_Draft]:
    """Text patterns keep live evidence that was not clustered again, since it is too old to be in the window."""
    taken = frozenset[UUID]().union(*(draft.cluster.signal_ids for draft in drafts))
    kept = []
    for draft in drafts:
        if draft.known and draft.cluster.key is None:
            older = frozenset(i for i in draft.known.evidence - taken if i in pool and pool[i].vector is None)
            draft = replace(draft, cluster=replace(draft.cluster, signal_ids=draft.cluster.signal_ids | older))
        kept.append(draft)
    return kept


def _left_over(drafts: Sequence[_Draft], pool: Mapping[UUID, Signal], known: Sequence[Known]) -> list[_Draft]:
    """Surfaced patterns that no cluster was matched to keep what nobody else has taken."""
    found = {draft.pattern_id for draft in drafts}
    taken = frozenset[UUID]().union(*(draft.cluster.signal_ids for draft in drafts))
    return [
        _Draft(
            pattern.pattern_id,
            Cluster(
                pattern.strategy,
                frozenset(i for i in pattern.evidence if i in pool) - taken,
                pattern.key,
                expected=pattern.expected,
                got=pattern.got,
            ),
            pattern.title,
            pattern,
        )
        for pattern in sorted(known, key=lambda pattern: pattern.pattern_id)
        if pattern.pattern_id not in found and pattern.standing.state
    ]


# --- judgement --------------------------------------------------------------------------------------------


def _judged(scope: Scope, draft: _Draft, pool: Mapping[UUID, Signal]) -> Pattern:
    signals = [pool[i] for i in sorted(draft.cluster.signal_ids)]
    known, now = draft.known, scope.now
    counts = domain.count(signals, scope.trusted, scope.thresholds)
    passes = domain.surfaces(counts, scope.thresholds)
    automatic = domain.is_automatic(counts, scope.thresholds)
    last_seen = max((s.last_seen for s in signals), default=known.last_seen if known else now)
    before = known.standing if known else Standing()
    standing = domain.next_state(before, counts, passes, last_seen, now)
    surfaced = standing.state in ("new", "reopened") and before.state in (None, "resolved")
    strengthened = automatic and known is not None and not known.automatic and standing.state is not None
    announced = surfaced or strengthened
    weighed = domain.weigh(signals, scope.trusted, now)
    parts = domain.score_parts(weighed, scope.trusted, now)
    centroid = _centroid(signals) if signals else (known.centroid if known else None)
    return Pattern(
        pattern_id=draft.pattern_id,
        strategy=draft.cluster.strategy,
        key=draft.cluster.key,
        title=draft.title,
        expected=draft.cluster.expected,
        got=draft.cluster.got,
        standing=standing,
        before=before.state,
        occurrence=(known.occurrence if known else 0) + announced,
        automatic=automatic,
        announced=announced,
        counts=counts,
        parts=parts,
        score=domain.score(parts),
        first_seen=_first_seen(signals, known, now),
        last_seen=last_seen,
        evidence=_strengths(weighed, centroid),
        centroid=centroid,
    )


def _first_seen(signals: Sequence[Signal], known: Known | None, now: datetime) -> datetime:
    seen = [signal.first_seen for signal in signals] + ([known.first_seen] if known else [])
    return min(seen, default=now)


def _strengths(weighed: Sequence[tuple[Signal, float]], centroid: Vector | None) -> tuple[Weighed, ...]:
    """The evidence, strongest first: weight × centrality × how much of the actor's flood still counts."""
    totals: dict[str, float] = {}
    for signal, weight in weighed:
        totals[signal.actor_id] = totals.get(signal.actor_id, 0.0) + weight
    counted = {actor: domain.saturated(total) / total for actor, total in totals.items()}
    found = [
        Weighed(signal, weight, weight * _centrality(signal, centroid) * counted[signal.actor_id])
        for signal, weight in weighed
    ]
    return tuple(sorted(found, key=lambda one: (-round(one.strength, 9), one.signal.signal_id)))


def _centrality(signal: Signal, centroid: Vector | None) -> float:
    """How typical a signal is of its pattern, between 0 and 1."""
    if signal.vector is None or centroid is None:
        return UNPLACED
    return max(0.0, min(1.0, float(signal.vector @ centroid)))


def _centroid(signals: Sequence[Signal]) -> Vector | None:
    return text.centroid([signal.vector for signal in signals if signal.vector is not None])


def _within_limit(patterns: Sequence[Pattern], most: int) -> list[Pattern]:
    """No more than `most` open patterns: those that would be too many stay below the surface, the weakest first."""
    is_open = [p for p in patterns if p.standing.state not in (None, "resolved")]
    room = most - sum(1 for p in is_open if p.before not in (None, "resolved"))
    rising = sorted((p for p in is_open if p.before in (None, "resolved")), key=lambda p: (-p.score, p.pattern_id))
    held_back = {p.pattern_id for p in rising[max(0, room) :]}
    return [_held_back(p) if p.pattern_id in held_back else p for p in patterns]


def _held_back(pattern: Pattern) -> Pattern:
    return replace(
        pattern,
        standing=replace(pattern.standing, state=pattern.before),
        occurrence=pattern.occurrence - 1,
        announced=False,
    )
