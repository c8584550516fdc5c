"""Groups over payload fields, kept where they are over-represented against the touchpoint's own baseline. Pure.

expected→got: with N signals that name both, K of them expecting e and n of them having got g, a pair seen k times
is compared with independence of the two margins: the upper tail of the hypergeometric distribution, which is
Fisher's exact test. Single fields: a value seen k times among N is compared with its share of the history older
than 30 days where there is enough of it, and else with an even share of the values seen (binomial upper tail).

In both, Benjamini–Hochberg holds the false discovery rate over all groups of a kind at `FALSE_DISCOVERY_RATE`, and
the odds of a group must be `…_ODDS` times what they would be: with many signals a difference can be certain and still
be nothing. (Odds and not shares, or the one fault that makes up most of a touchpoint's could never stand out.)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, false_discovery_control, hypergeom

from services.pattern_detector.domain import FIELDS, HALF_FROM, Cluster, Signal

FALSE_DISCOVERY_RATE = 0.05
PAIR_ODDS = 2.0
FIELD_ODDS = 3.0
SMALLEST = 2

PRIOR_FAULTS = 5
"""Faults that share neither margin, added to the table: without them a touchpoint with one kind of fault has no
baseline at all and its only fault could never be found. Among a hundred signals they no longer matter."""

ENOUGH_HISTORY = 50
LONGEST_LABEL = 120
"""Longer outputs are prose, not labels, and do not form groups."""

Numbers = NDArray[np.int64] | NDArray[np.float64]


@dataclass(frozen=True)
class Group:
    """A value, or pair of values, with its signals, how likely so many are by chance, and the ratio of its odds."""

    key: str
    field: str
    value: str | None
    pair: tuple[str, str] | None
    signal_ids: tuple[UUID, ...]
    p_value: float
    odds: float

    def cluster(self) -> Cluster:
        """The group as a cluster of the categorical strategy."""
        expected, got = self.pair or (None, None)
        return Cluster("categorical", frozenset(self.signal_ids), self.key, self.field, self.value, expected, got)


def find(signals: Sequence[Signal], now: datetime, standing: Collection[str] = ()) -> list[Cluster]:
    """Groups that stand out, disjoint: pairs first, then each field over what is left, most specific first.

    `standing` are the keys of patterns that have surfaced before: they keep collecting their evidence as long as
    there is any, since a fault does not stop being one when others become more frequent.
    """
    kept = _kept(pairs(signals), PAIR_ODDS, standing)
    taken = {signal_id for group in kept for signal_id in group.signal_ids}
    for field in FIELDS:
        left = [signal for signal in signals if signal.signal_id not in taken]
        found = _kept(values(left, field, now), FIELD_ODDS, standing)
        taken |= {signal_id for group in found for signal_id in group.signal_ids}
        kept += found
    return [group.cluster() for group in kept]


def pairs(signals: Sequence[Signal]) -> list[Group]:
    """Every expected→got pair with its tail probability under independence, by key."""
    labelled = [(signal, pair) for signal in signals if (pair := signal.pair) and _is_label(*pair)]
    members: dict[tuple[str, str], list[UUID]] = {}
    for signal, pair in labelled:
        members.setdefault(pair, []).append(signal.signal_id)
    if not members:
        return []
    ordered = sorted(members)
    rows = Counter(pair[0] for _, pair in labelled)
    columns = Counter(pair[1] for _, pair in labelled)
    seen = np.array([len(members[pair]) for pair in ordered])
    row = np.array([rows[pair[0]] for pair in ordered])
    column = np.array([columns[pair[1]] for pair in ordered])
    total = len(labelled) + PRIOR_FAULTS
    tails = hypergeom.sf(seen - 1, total, row, column)
    odds = _odds_ratio(seen, row - seen, column - seen, total - row - column + seen)
    return [
        Group(pair_key(*pair), "pair", None, pair, tuple(sorted(members[pair])), float(p), float(ratio))
        for pair, p, ratio in zip(ordered, tails, odds, strict=True)
    ]


def values(signals: Sequence[Signal], field: str, now: datetime) -> list[Group]:
    """Every value of a field with its tail probability against the baseline, by key."""
    members: dict[str, list[UUID]] = {}
    for signal in signals:
        if (value := signal.fields.get(field)) and _is_label(value):
            members.setdefault(value, []).append(signal.signal_id)
    if not members:
        return []
    ordered = sorted(members)
    recent, shares = _against(signals, field, ordered, now)
    total = int(recent.sum())
    tails = binom.sf(recent - 1, total, shares)
    odds = _odds_ratio(recent, total - recent, shares * total, (1 - shares) * total)
    return [
        Group(value_key(field, value), field, value, None, tuple(sorted(members[value])), float(p), float(ratio))
        for value, p, ratio in zip(ordered, tails, odds, strict=True)
    ]


def pair_key(expected: str, got: str) -> str:
    """What a pattern of this pair is recognised by."""
    return json.dumps(["pair", expected, got], ensure_ascii=False)


def value_key(field: str, value: str) -> str:
    """What a pattern of this value is recognised by."""
    return json.dumps(["field", field, value], ensure_ascii=False)


def _against(
    signals: Sequence[Signal], field: str, ordered: Sequence[str], now: datetime
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Counts to judge and the baseline's shares, by value: recent against history, or all against an even share."""
    old = Counter(s.fields[field] for s in signals if field in s.fields and now - s.first_seen >= HALF_FROM)
    new = Counter(s.fields[field] for s in signals if field in s.fields and now - s.first_seen < HALF_FROM)
    history = sum(old[value] for value in ordered)
    if history >= ENOUGH_HISTORY:
        smoothed = np.array([old[value] + 1 for value in ordered]) / (history + len(ordered))
        return np.array([new[value] for value in ordered]), smoothed
    every = np.array([old[value] + new[value] for value in ordered])
    return every, np.full(len(ordered), 1 / len(ordered))


def _odds_ratio(a: Numbers, b: Numbers, c: Numbers, d: Numbers) -> NDArray[np.float64]:
    """The odds ratio of the table [[a, b], [c, d]], with a half added to each cell (Haldane 1956, Anscombe 1956)."""
    ratio: NDArray[np.float64] = (a + 0.5) * (d + 0.5) / ((b + 0.5) * (c + 0.5))
    return ratio


def _kept(groups: list[Group], odds: float, standing: Collection[str]) -> list[Group]:
    """Those that stand out or stood before, likeliest fault first."""
    candidates = [group for group in groups if len(group.signal_ids) >= SMALLEST]
    significant = _significant(candidates)
    chosen = [group for group in groups if group.key in standing or (group.key in significant and group.odds >= odds)]
    return sorted(chosen, key=lambda group: (group.p_value, group.key))


def _significant(groups: Sequence[Group]) -> Mapping[str, float]:
    """Keys whose adjusted p value is below the false discovery rate."""
    if not groups:
        return {}
    adjusted = false_discovery_control([group.p_value for group in groups], method="bh")
    return {group.key: float(p) for group, p in zip(groups, adjusted, strict=True) if p <= FALSE_DISCOVERY_RATE}


def _is_label(*texts: str) -> bool:
    return all(0 < len(text) <= LONGEST_LABEL and "\n" not in text for text in texts)
