"""How well questions find their pair, on Banking77 and CLINC150: every lane alone, their fusion, and rank fusion.

`python -m bench.search_quality --json` prints one JSON object; `--quick` asks a fifth; `--fit` first fits the weights
and thresholds of the model on the fitted split and writes them to `services/qa_ingest/tuning.json`. What is judged
shares neither queries nor phrasings with what is fitted.

A pair is an intent with k of its phrasings; a query is one that nobody wrote into the library:
`unseen` as people asked; `typos` the same with one wrong letter in a word; `two_words` its two most telling words.
`remembered_typos` and `remembered_words` are made of a phrasing that is in the library. `outside` are questions that no
pair answers. A false answer is one of those whose first hit is `strong` or `exact`.
"""

from __future__ import annotations

import asyncio
import csv
import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from uuid import UUID, uuid5

import click
import numpy as np

from bench import machine
from libs.contracts.envelope import EVENT_NAMESPACE
from libs.embeddings import Embedder, embedder_from
from libs.service_kit.db import Database
from libs.service_kit.testing import Installation
from services.qa_ingest import searching
from services.qa_ingest.domain import ranking
from services.qa_ingest.domain.ranking import Key, Lane
from services.qa_ingest.domain.tuning import Tuning, Tunings
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.searching import Found
from services.qa_ingest.settings import TUNING, fitted
from services.qa_ingest.store import operations
from services.qa_ingest.store.search import Filters

DATA = Path(os.environ.get("BURNISH_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
GOAL = (
    "fused no worse than the best lane on any set (hit@1, interval of the difference not below 0), better than"
    " equal-weight rank fusion on all; false answers ≤ 5 %"
)
PHRASINGS: tuple[int | None, ...] = (1, 3, 10, None)
"""How many a pair has; None: from 1 to 10, as in a real library."""
QUERIES, QUICK_QUERIES = 500, 100
AT_ONCE = 3
BOOTSTRAPS = 2_000
FALSE_STRONG, FALSE_FAIR = 0.01, 0.20
"""What thresholds are fitted to: far below the 5 % of the goal, for a few hundred questions say little about a tail."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
RRF_K = 60
RANKED = ("unseen", "typos", "two_words", "remembered_typos", "remembered_words")
"""The sets that have right answers."""
T = TypeVar("T")


@dataclass(frozen=True)
class Corpus:
    """Intents with phrasings to put into a library, queries to ask, and questions that no intent answers."""

    name: str
    phrasings: Mapping[str, Sequence[str]]
    queries: Mapping[str, Sequence[str]]
    outside: Sequence[str]


@dataclass(frozen=True)
class Asked:
    """One query of a set, what the lanes found, and the pair that is right; None where none is."""

    found: Found
    right: UUID | None


# --- the data -----------------------------------------------------------------------------------------------------


def corpora(split: str) -> list[Corpus]:
    """Both corpora; `fit` and `judge` share no query and, by the seeds of `library`, hardly a phrasing."""
    banking = {part: _banking(part) for part in ("train", "test")}
    clinc = json.loads((DATA / "clinc150" / "data_small.json").read_text("utf-8"))
    parts = {part: _grouped((intent, text) for text, intent in clinc[part]) for part in ("train", "val", "test")}
    told = "val" if split == "fit" else "test"
    domains = json.loads((DATA / "clinc150" / "domains.json").read_text("utf-8"))
    money = {intent for domain in ("banking", "credit_cards") for intent in domains[domain]}
    elsewhere = [text for intent, texts in sorted(parts[told].items()) if intent not in money for text in texts]
    outside = [
        text for part in (("oos_train", "oos_val") if split == "fit" else ("oos_test",)) for text, _ in clinc[part]
    ]
    halves = {intent: _half(texts, split) for intent, texts in banking["train"].items()}
    asked = {intent: texts[20:] for intent, texts in halves.items()} if split == "fit" else banking["test"]
    return [
        Corpus("banking77", {intent: texts[:20] for intent, texts in halves.items()}, asked, elsewhere),
        Corpus("clinc150", {i: _half(t, split) for i, t in parts["train"].items()}, parts[told], outside),
    ]


def _half(texts: Sequence[str], split: str) -> list[str]:
    """Phrasings are dealt out in turn, so that no split has those of the other."""
    return list(texts)[0 if split == "fit" else 1 :: 2]


def _banking(part: str) -> dict[str, list[str]]:
    with (DATA / "banking77" / f"{part}.csv").open(encoding="utf-8", newline="") as file:
        return _grouped((row["category"], " ".join(row["text"].split())) for row in csv.DictReader(file))


def _grouped(rows: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, text in rows:
        found[name].append(text)
    return found


def library(corpus: Corpus, count: int | None, seed: int) -> dict[str, list[str]]:
    """Which phrasings each pair has."""
    random = Random(seed)
    return {
        intent: random.sample(list(texts), min(len(texts), count or random.choice((1, 1, 2, 3, 5, 10))))
        for intent, texts in sorted(corpus.phrasings.items())
    }


def query_sets(corpus: Corpus, pairs: Mapping[str, Sequence[str]], count: int, seed: int) -> dict[str, Any]:
    """The sets of queries, each with its intent; None where no pair answers."""
    random = Random(seed)
    every = [(text, intent) for intent, texts in sorted(corpus.queries.items()) for text in texts]
    unseen = random.sample(every, min(count, len(every)))
    kept = random.sample([(text, intent) for intent, texts in pairs.items() for text in texts], min(count, len(pairs)))
    known = Counter(word for texts in pairs.values() for word in set(_words(" ".join(texts))))
    return {
        "unseen": unseen,
        "typos": [(_typo(text, random), intent) for text, intent in unseen],
        "two_words": [(_two_words(text, known), intent) for text, intent in unseen],
        "remembered_typos": [(_typo(text, random), intent) for text, intent in kept],
        "remembered_words": [(_two_words(text, known), intent) for text, intent in kept],
        "outside": [(text, None) for text in random.sample(list(corpus.outside), min(count, len(corpus.outside)))],
    }


def _words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.lower())


def _typo(text: str, random: Random) -> str:
    """Within a word of at least four letters, one is swapped with the next, lost, preceded by another, or another."""
    words = text.split()
    long = [n for n, word in enumerate(words) if len(re.sub(r"\W", "", word)) >= 4]
    if not long:
        return text
    n = random.choice(long)
    at = random.randrange(1, len(words[n]) - 1)
    before, letter, following = words[n][:at], words[n][at], words[n][at + 1 :]
    other = random.choice(LETTERS)
    swapped = following[:1] + letter + following[1:]
    words[n] = before + random.choice((swapped, following, other + letter + following, other + following))
    return " ".join(words)


def _two_words(text: str, known: Mapping[str, int]) -> str:
    """The two words that are rarest in the library and in it, in their order."""
    words = list(dict.fromkeys(_words(text)))
    rare = sorted(range(len(words)), key=lambda n: (known.get(words[n], 0) == 0, known.get(words[n], 0), n))[:2]
    return " ".join(words[n] for n in sorted(rare))


# --- asking the library -------------------------------------------------------------------------------------------

_PAIRS = """
INSERT INTO q_a_pairs (id, workspace_id, question_text, alternate_question_phrasings, answer_standard, origin_kind,
                       created_by, updated_by, publication_status)
SELECT id, $1, question_text, alternate_question_phrasings, 'See the handbook.', 'curated_explicit', 'bench', 'bench',
       'published'
FROM jsonb_to_recordset($2) AS new (id uuid, question_text text, alternate_question_phrasings text[])
"""


async def asked_of(
    db: Database, embedder: Embedder, corpus: Corpus, count: int | None, queries: int, seed: int
) -> dict[str, list[Asked]]:
    """Fill a workspace of its own, and ask every query of every set there."""
    name = f"{corpus.name}|{count}|{seed}"
    workspace = uuid5(EVENT_NAMESPACE, name)
    pairs = library(corpus, count, seed)
    ids = {intent: uuid5(workspace, intent) for intent in pairs}
    rows = [
        {"id": ids[intent], "question_text": first, "alternate_question_phrasings": rest}
        for intent, (first, *rest) in pairs.items()
    ]
    async with db.transaction() as tx:
        await operations.enter(tx.conn, workspace)
        await tx.conn.execute("INSERT INTO workspaces (id, name) VALUES ($1, $2)", workspace, name)
        await tx.conn.execute(_PAIRS, workspace, rows)
    await Embedding(db, embedder, lambda: [workspace]).embed_missing()
    filters = Filters((workspace,), publication_status=("published",))

    async def ask(query: tuple[str, str | None]) -> Asked:
        understood = await searching.understood(query[0], embedder)
        async with db.connection(workspaces=[workspace]) as conn:
            found = await searching.look(conn, understood, filters)
        return Asked(found, ids[query[1]] if query[1] else None)

    sets = query_sets(corpus, pairs, queries, seed)
    return {name: await _some_at_once(ask, each) for name, each in sets.items()}


async def _some_at_once(work: Callable[[Any], Awaitable[T]], items: Sequence[Any]) -> list[T]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: Any) -> T:
        async with gate:
            return await work(item)

    return list(await asyncio.gather(*map(one, items)))


# --- judging ------------------------------------------------------------------------------------------------------

Order = Sequence[Key]


def orders(asked: Asked, tuning: Tuning) -> dict[str, Order]:
    """What each way of ranking makes of what was found."""
    lanes = asked.found.lanes
    near = asked.found.closeness
    alone: dict[str, Order] = {lane: [row.key for row in lanes.get(lane, [])] for lane in _LANES}
    return {
        **alone,
        "neighbours": sorted(near, key=lambda key: (-near[key].similarity - near[key].neighbours, str(key))),
        "rank_fusion": _rank_fusion(lanes),
        "fused": [row.key for row in asked.found.fused(tuning)],
    }


_LANES: tuple[Lane, ...] = ("vector", "fulltext", "trigram")


def _rank_fusion(lanes: Mapping[Lane, Sequence[ranking.Candidate]]) -> Order:
    """Reciprocal rank fusion with equal weights (Cormack, Clarke and Büttcher 2009), exact hits pinned as ours are."""
    scores: dict[Key, float] = defaultdict(float)
    for lane, rows in lanes.items():
        for place, row in enumerate(rows, start=1):
            scores[row.key] += (1_000.0 if lane == "exact" else 1.0) / (RRF_K + place)
    return sorted(scores, key=lambda key: (-scores[key], str(key)))


def place(order: Order, right: UUID | None) -> int:
    """The place of the right pair, from 1; 0 where it is not there."""
    return next((n for n, key in enumerate(order, start=1) if key[1] == right), 0)


def figures(places: Sequence[int]) -> dict[str, float]:
    """hit@1, MRR@10, nDCG@10 and recall@50 of these places."""
    count = len(places)
    return {
        "hit@1": round(sum(n == 1 for n in places) / count, 4),
        "hit@5": round(sum(0 < n <= 5 for n in places) / count, 4),
        "mrr@10": round(sum(1 / n for n in places if 0 < n <= 10) / count, 4),
        "ndcg@10": round(sum(1 / math.log2(n + 1) for n in places if 0 < n <= 10) / count, 4),
        "recall@50": round(sum(0 < n <= 50 for n in places) / count, 4),
    }


def difference(ours: Sequence[int], theirs: Sequence[int]) -> dict[str, float]:
    """The difference in hit@1 with its 95 % interval, by a paired bootstrap over queries."""
    paired = np.array([(a == 1) - (b == 1) for a, b in zip(ours, theirs, strict=True)], dtype=np.float64)
    draws = np.random.default_rng(1).integers(0, len(paired), (BOOTSTRAPS, len(paired)))
    low, high = np.quantile(paired[draws].mean(axis=1), (0.025, 0.975))
    return {"difference": round(paired.mean(), 4), "low": round(low, 4), "high": round(high, 4)}


def judged(asked: Sequence[Asked], tuning: Tuning) -> dict[str, Any]:
    """The figures of one set, for every way of ranking."""
    places: dict[str, list[int]] = defaultdict(list)
    for each in asked:
        for way, order in orders(each, tuning).items():
            places[way].append(place(order, each.right))
    ways = {way: figures(found) for way, found in places.items()}
    best = max(_LANES, key=lambda lane: ways[lane]["hit@1"])
    return {
        **ways,
        "queries": len(asked),
        "best_lane": best,
        "against_best_lane": difference(places["fused"], places[best]),
        "against_neighbours": difference(places["fused"], places["neighbours"]),
        "against_rank_fusion": difference(places["fused"], places["rank_fusion"]),
        "empty_rate": round(sum(not each.found.fused(tuning) for each in asked) / len(asked), 4),
    }


def answers(inside: Sequence[Asked], outside: Sequence[Asked], tuning: Tuning) -> dict[str, Any]:
    """How many questions that nothing answers get an answer, and how many good answers are given."""
    false, fair, empty = 0, 0, 0
    for each in outside:
        first = next(iter(each.found.fused(tuning)), None)
        strength = ranking.strength(first, tuning) if first else None
        false += strength in ("strong", "exact")
        fair += strength in ("strong", "exact", "fair")
        empty += first is None
    firsts = [(each, next(iter(each.found.fused(tuning)), None)) for each in inside]
    good = [row for each, row in firsts if row is not None and row.key[1] == each.right]
    given = [row for _, row in firsts if row is not None and ranking.strength(row, tuning) in ("strong", "exact")]
    kept = [row for row in good if ranking.strength(row, tuning) in ("strong", "exact")]
    return {
        "false_answer_rate": round(false / len(outside), 4),
        "false_fair_rate": round(fair / len(outside), 4),
        "outside_empty_rate": round(empty / len(outside), 4),
        "good_answers_kept": round(len(kept) / len(good), 4) if good else None,
        "strong_that_are_right": round(len(kept) / len(given), 4) if given else None,
    }


# --- fitting ------------------------------------------------------------------------------------------------------


def fit(every: Mapping[str, Mapping[str, list[Asked]]], before: Tuning, near_duplicate: float) -> Tuning:
    """The weights that rank best over all sets of the fitted split, then thresholds for them.

    Best is the mean reciprocal rank, less what hit@1 lacks to the best lane and to rank fusion where it lacks any.
    """
    sets = [found[name] for found in every.values() for name in RANKED]
    others = [max(_hits(asked, way) for way in (*_LANES, "rank_fusion")) for asked in sets]

    def gain(tuning: Tuning) -> float:
        places = [[place(_fused(each, tuning), each.right) for each in asked] for asked in sets]
        means = [sum(1 / n for n in found if 0 < n <= 10) / len(found) for found in places]
        lacking = [
            max(0.0, other - sum(n == 1 for n in found) / len(found))
            for other, found in zip(others, places, strict=True)
        ]
        return sum(means) / len(means) - sum(lacking) / len(lacking)

    grid = product((0.005, 0.01, 0.02), (0.0, 0.1, 0.2, 0.3), (0.05, 0.1, 0.2), (0.25, 0.5))
    names = ("lexical", "share", "trigram", "pooling")
    # Without a floor, which is fitted to the weights and not the other way round.
    tried = [before.model_copy(update={"floor": -1.0, **dict(zip(names, point, strict=True))}) for point in grid]
    tuning = max(tried, key=gain)
    tuning = tuning.model_copy(update={"floor": round(_floor(every), 3)})
    strong, fair = (_threshold(every, tuning, share) for share in (FALSE_STRONG, FALSE_FAIR))
    told = {"strong": strong, "fair": fair, "near_duplicate": near_duplicate}
    return tuning.model_copy(update={name: round(value, 3) for name, value in told.items()})


def _hits(asked: Sequence[Asked], way: str) -> float:
    found = [_rank_fusion(each.found.lanes) if way == "rank_fusion" else _lane(each, way) for each in asked]
    return sum(place(order, each.right) == 1 for order, each in zip(found, asked, strict=True)) / len(asked)


def _lane(asked: Asked, lane: str) -> Order:
    return [row.key for name, rows in asked.found.lanes.items() if name == lane for row in rows]


def _fused(asked: Asked, tuning: Tuning) -> Order:
    return [row.key for row in asked.found.fused(tuning)]


def _threshold(every: Mapping[str, Mapping[str, list[Asked]]], tuning: Tuning, share: float) -> float:
    """The score that at most this share of questions from outside reaches, in every library."""
    tops = [
        [next((row.score for row in each.found.fused(tuning)), 0.0) for each in sets["outside"]]
        for sets in every.values()
    ]
    return max(float(np.quantile(scores, 1 - share)) for scores in tops)


def _floor(every: Mapping[str, Mapping[str, list[Asked]]]) -> float:
    """The cosine that 99 % of right pairs reach for whole questions, in every library."""
    reached = []
    for asked in (sets[name] for sets in every.values() for name in ("unseen", "typos")):
        near = [each.found.closeness.get(("curated", each.right)) for each in asked if each.right is not None]
        reached.append(float(np.quantile([each.similarity for each in near if each is not None], 0.01)))
    return max(0.0, min(reached))


async def near_duplicates(embedder: Embedder) -> float:
    """The cosine from which 95 % of two questions are of one intent, over the fitted phrasings of both corpora."""
    reached = []
    for corpus in corpora("fit"):
        random = Random(5)
        rows = [
            (text, n) for n, texts in enumerate(corpus.phrasings.values()) for text in random.sample(list(texts), 10)
        ]
        vectors = await embedder.embed([text for text, _ in rows])
        owner = np.array([n for _, n in rows])
        upper = np.triu_indices(len(rows), 1)
        cosines = (vectors @ vectors.T)[upper]
        same = (owner[:, None] == owner[None, :])[upper]
        order = np.argsort(-cosines)
        precision = np.cumsum(same[order]) / np.arange(1, len(order) + 1)
        enough = np.nonzero(precision >= 0.95)[0]
        reached.append(float(cosines[order[enough[-1]]]) if len(enough) else 1.0)
    return max(reached)


# --- the whole ----------------------------------------------------------------------------------------------------


async def measure(installation: Installation, kind: Any, queries: int, do_fit: bool) -> dict[str, Any]:
    """Fit where asked for, then judge on the other split."""
    embedder = embedder_from(kind)
    db = Database("qa_ingest", installation.servers.role_dsn("qa_ingest", installation.database), pool_size=AT_ONCE)
    await db.open()
    try:
        if do_fit:
            every = await _every(db, embedder, "fit", queries)
            _write(embedder.model, fit(every, fitted().of(embedder.model), await near_duplicates(embedder)))
        tuning = _tunings().of(embedder.model)
        every = await _every(db, embedder, "judge", queries)
    finally:
        await db.close()
    sets = {
        f"{library} {name}": judged(asked, tuning)
        for library, found in every.items()
        for name, asked in found.items()
        if name != "outside"
    }
    told = {library: answers(found["unseen"], found["outside"], tuning) for library, found in every.items()}
    worse = [name for name, each in sets.items() if each["against_best_lane"]["high"] < 0]
    below = [name for name, each in sets.items() if each["against_best_lane"]["difference"] < 0]
    not_better = [name for name, each in sets.items() if each["against_rank_fusion"]["difference"] <= 0]
    unclear = [name for name, each in sets.items() if each["against_rank_fusion"]["low"] <= 0]
    false = max(each["false_answer_rate"] for each in told.values())
    found_figures = {
        "model": embedder.model,
        "tuning": tuning.model_dump(),
        "worse_than_best_lane_beyond_noise": worse,
        "below_best_lane_within_noise": below,
        "not_better_than_rank_fusion": not_better,
        "better_than_rank_fusion_within_noise": unclear,
        "answers": told,
        "sets": sets,
    }
    return machine.report("search_quality", GOAL, not worse and not not_better and false <= 0.05, found_figures)


async def _every(db: Database, embedder: Embedder, split: str, queries: int) -> dict[str, dict[str, list[Asked]]]:
    seed = 11 if split == "fit" else 12
    return {
        f"{corpus.name} k={count or '1–10'}": await asked_of(db, embedder, corpus, count, queries, seed)
        for corpus in corpora(split)
        for count in PHRASINGS
    }


def _tunings() -> Tunings:
    return Tunings.model_validate_json(TUNING.read_bytes())


def _write(model: str, tuning: Tuning) -> None:
    tunings = _tunings()
    told = {"models": {**tunings.models, model: tuning}, "unfitted": tunings.unfitted}
    TUNING.write_text(json.dumps(Tunings(**told).model_dump(), indent=2) + "\n", "utf-8")


@click.command()
@click.option("--quick", is_flag=True, help="A fifth of the queries.")
@click.option("--fit", "do_fit", is_flag=True, help="First fit weights and thresholds of the model, and write them.")
@click.option("--embedder", default="static", show_default=True, help="A kind, or JSON with `kind` and options.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, do_fit: bool, embedder: str, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    kind = json.loads(embedder) if embedder.startswith("{") else embedder
    machine.run(lambda installation: measure(installation, kind, QUICK_QUERIES if quick else QUERIES, do_fit))


if __name__ == "__main__":
    main()
