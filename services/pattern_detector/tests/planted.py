"""Corpora with planted faults among noise, from real text, and how well they were found.

Half of the planted faults are confusions (people named what they expected), half are topics without labels. At least
half of the signals are noise: out-of-scope questions, single questions of other intents, and random confusions.
"""

from __future__ import annotations

import csv
import json
import os
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from uuid import UUID

from libs.embeddings import StaticEmbedder
from services.pattern_detector.analysis import Scope, analyse
from services.pattern_detector.domain import Known, Pattern, Signal
from services.pattern_detector.tests.support import signal

DATA = Path(os.environ.get("BURNISH_SHARED_DATA", Path(__file__).resolve().parents[4] / "shared" / "data"))
SIZES = (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50)
PEOPLE = 40

Topics = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Corpus:
    """Signals, and which planted fault each belongs to; noise is in none."""

    signals: list[Signal]
    truth: dict[UUID, int]


def banking77() -> Topics:
    """The train split of Banking77: text by intent."""
    found: dict[str, list[str]] = defaultdict(list)
    with (DATA / "banking77" / "train.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            found[row["category"]].append(row["text"])
    return found


def clinc150() -> Topics:
    """The train split of CLINC150: text by intent, with what is out of scope under `oos`."""
    splits = json.loads((DATA / "clinc150" / "data_small.json").read_text(encoding="utf-8"))
    found: dict[str, list[str]] = defaultdict(list)
    for text, intent in splits["train"]:
        found[intent].append(text)
    found["oos"] = [text for split in ("oos_train", "oos_val", "oos_test") for text, _ in splits[split]]
    return found


def planted(topics: Topics, outside: Sequence[str], random: Random, *, faults: int = 20) -> Corpus:
    """A corpus with so many faults of 3 to 50 signals, and as many signals of noise."""
    names = sorted(name for name in topics if name != "oos")
    random.shuffle(names)
    rows: list[tuple[int, str, str | None, str | None]] = []
    for fault, name in enumerate(names[:faults]):
        texts = random.sample(list(topics[name]), min(random.choice(SIZES), len(topics[name])))
        pair = (name, random.choice(names[faults:])) if fault % 2 == 0 else (None, None)
        rows += [(fault, text, *pair) for text in texts]
    wanted = len(rows)
    single = [random.choice(topics[name]) for name in names[faults:]]
    for n, text in enumerate([*single, *random.sample(list(outside), max(0, wanted - len(single)))]):
        expected, got = random.sample(names, 2) if n % 2 == 0 else (None, None)
        rows.append((-1, text, expected, got))
    return _embedded([_signal(n, row, random) for n, row in enumerate(rows)], [row[0] for row in rows])


def _signal(n: int, row: tuple[int, str, str | None, str | None], random: Random) -> Signal:
    _, text, expected, got = row
    return signal(
        f"{random.random()}-{n}", text=text, expected=expected, got=got, actor_id=f"user-{random.randrange(PEOPLE)}"
    )


def _embedded(signals: Sequence[Signal], faults: Sequence[int]) -> Corpus:
    vectors = StaticEmbedder().embed_now([one.words for one in signals])
    placed = [replace(one, vector=vector) for one, vector in zip(signals, vectors, strict=True)]
    return Corpus(placed, {one.signal_id: fault for one, fault in zip(placed, faults, strict=True) if fault >= 0})


def found(scope: Scope, signals: Sequence[Signal], known: Sequence[Known] = ()) -> list[Pattern]:
    """The surfaced patterns."""
    return [p for p in analyse(scope, signals, known) if p.standing.state not in (None, "resolved")]


def as_known(patterns: Sequence[Pattern]) -> list[Known]:
    """Patterns as the next run meets them."""
    return [
        Known(
            pattern_id=p.pattern_id,
            strategy=p.strategy,
            key=p.key,
            title=p.title,
            expected=p.expected,
            got=p.got,
            standing=p.standing,
            occurrence=p.occurrence,
            automatic=p.automatic,
            evidence=frozenset(one.signal.signal_id for one in p.evidence),
            first_seen=p.first_seen,
            last_seen=p.last_seen,
            centroid=p.centroid,
        )
        for p in patterns
    ]


def assigned(patterns: Sequence[Pattern]) -> dict[UUID, UUID]:
    """The pattern of each signal that is evidence."""
    return {one.signal.signal_id: p.pattern_id for p in patterns for one in p.evidence}


def pairwise(truth: Mapping[UUID, int], patterns: Sequence[Pattern]) -> tuple[float, float, float]:
    """Precision, recall and F1 over pairs of signals that are, or are said to be, of one fault."""
    said = assigned(patterns)
    both = Counter((truth[i], said[i]) for i in said if i in truth)
    hits = _pairs(both.values())
    precision = hits / max(1, _pairs(Counter(said.values()).values()))
    recall = hits / max(1, _pairs(Counter(truth.values()).values()))
    return precision, recall, 2 * precision * recall / max(1e-9, precision + recall)


def _pairs(sizes: object) -> int:
    return sum(n * (n - 1) // 2 for n in sizes)  # type: ignore[attr-defined]


def survivors(before: Sequence[Pattern], after: Sequence[Pattern]) -> tuple[int, int]:
    """(ids that survived, ids in all): a pattern survives when most of its evidence is still under its id."""
    now = assigned(after)
    kept = 0
    for pattern in before:
        ids = [one.signal.signal_id for one in pattern.evidence]
        kept += sum(now.get(i) == pattern.pattern_id for i in ids) * 2 >= len(ids)
    return kept, len(before)


def survivors_by_evidence(before: Sequence[Pattern], after: Sequence[Pattern]) -> tuple[int, int]:
    """(patterns found again, patterns in all): found again when one pattern holds most of the evidence."""
    now = assigned(after)
    kept = 0
    for pattern in before:
        holders = Counter(now.get(one.signal.signal_id) for one in pattern.evidence)
        holders.pop(None, None)
        kept += max(holders.values(), default=0) * 2 >= len(pattern.evidence)
    return kept, len(before)
