"""Patterns on planted corpora and under poisoning, against what was planted.

`python -m bench.patterns --json` prints one JSON object; `--quick` runs a tenth of it.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import click
import numpy as np

from libs.embeddings import StaticEmbedder
from services.pattern_detector.analysis import analyse
from services.pattern_detector.domain import Pattern, Signal
from services.pattern_detector.tests import planted
from services.pattern_detector.tests.support import scope, signal

CORPORA, QUICK_CORPORA = 20, 3
TRIALS, QUICK_TRIALS = 1_000, 100
F1_GOAL, SURVIVAL_GOAL, RECALL_GOAL = 0.80, 0.95, 0.90
FIRST_SEED = 1_000
"""The settings were chosen on seeds below."""

FLOOD = 500
COLLUDERS = 2
"""k − 1, where k human actors make a proposal."""

LABELS = 20


@click.command()
@click.option("--quick", is_flag=True, help="A tenth of the corpora and trials.")
@click.option("--json", "as_json", is_flag=True, help="The default; for symmetry with the other benchmarks.")
def main(quick: bool, as_json: bool) -> None:
    """Measure and print one JSON object."""
    del as_json
    started = time.perf_counter()
    corpora = QUICK_CORPORA if quick else CORPORA
    trials = QUICK_TRIALS if quick else TRIALS
    banking, clinc = planted.banking77(), planted.clinc150()
    figures = {
        "banking77": _planted(banking, clinc["oos"], corpora),
        "clinc150": _planted(clinc, clinc["oos"], corpora),
        "poisoning": _poisoning(trials),
        "poisoned_fifth": _poisoned_fifth(banking, clinc["oos"], corpora),
    }
    ratios = _ratios(figures)
    click.echo(
        json.dumps(
            {
                "name": "patterns",
                "ratios": ratios,
                "goal": "each ratio at least 1: figure over its goal; no proposal from poisoning",
                "met": all(ratio >= 1 for ratio in ratios.values()) and not _made(figures["poisoning"]),
                **figures,
                "quick": quick,
                "seconds": round(time.perf_counter() - started, 1),
                "machine": {"cpus": os.cpu_count(), "python": platform.python_version()},
            },
            indent=2,
        )
    )


def _ratios(figures: dict[str, dict[str, Any]]) -> dict[str, float]:
    ratios = {"poisoned_recall": figures["poisoned_fifth"]["recall"] / RECALL_GOAL}
    for name in ("banking77", "clinc150"):
        ratios[f"{name}_f1"] = figures[name]["f1"] / F1_GOAL
        ratios[f"{name}_survival"] = figures[name]["survival"] / SURVIVAL_GOAL
    return {name: round(ratio, 3) for name, ratio in ratios.items()}


# --- planted corpora --------------------------------------------------------------------------------------


def _planted(topics: planted.Topics, outside: Sequence[str], corpora: int) -> dict[str, Any]:
    """Pairwise F1 of everything and of each kind of fault, survival of ids, and seconds a run."""
    whole, labelled, plain, seconds = [], [], [], []
    kept = total = 0
    for seed in range(FIRST_SEED, FIRST_SEED + corpora):
        corpus = planted.planted(topics, outside, Random(seed))
        started = time.process_time()
        patterns = planted.found(scope(), corpus.signals)
        seconds.append(time.process_time() - started)
        whole.append(planted.pairwise(corpus.truth, patterns))
        labelled.append(planted.pairwise(_half(corpus.truth, 0), _of(patterns, "categorical")))
        plain.append(planted.pairwise(_half(corpus.truth, 1), _of(patterns, "text")))
        one, of = _survival(corpus, seed)
        kept, total = kept + one, total + of
    precision, recall, f1 = np.mean(whole, axis=0).round(3).tolist()
    return {
        "corpora": corpora,
        "precision": precision,
        "recall": recall,
        "f1": f1,
        "f1_confusions": round(float(np.mean(labelled, axis=0)[2]), 3),
        "f1_topics": round(float(np.mean(plain, axis=0)[2]), 3),
        "survival": round(kept / total, 4),
        "ids": total,
        "cpu_seconds_a_run": round(float(np.mean(seconds)), 3),
    }


def _half(truth: dict[Any, int], odd: int) -> dict[Any, int]:
    """Confusions were planted with even numbers, topics without labels with odd ones."""
    return {signal_id: fault for signal_id, fault in truth.items() if fault % 2 == odd}


def _of(patterns: Sequence[Pattern], strategy: str) -> list[Pattern]:
    return [pattern for pattern in patterns if pattern.strategy == strategy]


def _survival(corpus: planted.Corpus, seed: int) -> tuple[int, int]:
    arrived = list(corpus.signals)
    Random(seed).shuffle(arrived)
    before = analyse(scope(), arrived[: len(arrived) * 10 // 11], [])
    after = analyse(scope(), arrived, planted.as_known(before))
    return planted.survivors([p for p in before if p.standing.state], after)


# --- poisoning --------------------------------------------------------------------------------------------


def _poisoning(trials: int) -> dict[str, Any]:
    """How often one actor with 500 signals, or k − 1 colluders with as many, make a proposal for what they claim.

    Every trial has honest noise of its own size, some of it on the very confusion that is claimed, and the flood
    comes with or without words.
    """
    words = StaticEmbedder().embed_now(["the answer is wrong", "it should say something else", "please change this"])
    one = sum(_is_made(Random(seed), 1, words) for seed in range(trials))
    several = sum(_is_made(Random(trials + seed), COLLUDERS, words) for seed in range(trials))
    return {"trials": trials, "made_by_one_actor": one, "made_by_colluders": several, "colluders": COLLUDERS}


def _made(poisoning: dict[str, Any]) -> bool:
    return bool(poisoning["made_by_one_actor"] or poisoning["made_by_colluders"])


def _is_made(random: Random, attackers: int, words: np.ndarray[Any, Any]) -> bool:
    names = [f"label_{n}" for n in range(LABELS)]
    target = random.sample(names, 2)
    honest = [_labelled(f"honest-{n}", random.sample(names, 2), f"user-{n % 30}") for n in range(random.randrange(200))]
    flood = [_labelled(f"flood-{n}", target, f"attacker-{n % attackers}") for n in range(FLOOD)]
    if random.random() < 0.1:  # clustering the words of a flood is slow; a tenth of the trials is enough
        flood = [replace(one, vector=random.choice(words)) for one in flood]
    claimed = [p for p in analyse(scope(), [*honest, *flood], []) if _is_of(p, "attacker")]
    return any(p.automatic for p in claimed)


def _labelled(key: str, pair: Sequence[str], actor: str) -> Signal:
    return signal(key, expected=pair[0], got=pair[1], actor_id=actor)


def _is_of(pattern: Pattern, who: str) -> bool:
    return any(one.signal.actor_id.startswith(who) for one in pattern.evidence)


def _poisoned_fifth(topics: planted.Topics, outside: Sequence[str], corpora: int) -> dict[str, Any]:
    """Share of the true patterns that are found clean that are still found when a fifth of all signals is poison.

    The poison claims confusions of its own, each by five actors, above every gate.
    """
    found = total = 0
    for seed in range(FIRST_SEED, FIRST_SEED + corpora):
        random = Random(seed)
        corpus = planted.planted(topics, outside, random)
        clean = planted.found(scope(), corpus.signals)
        poisoned = planted.found(scope(), [*corpus.signals, *_poison(random, len(corpus.signals) // 4, corpus)])
        true = [pattern for pattern in clean if _is_true(pattern, corpus)]
        kept, of = planted.survivors_by_evidence(true, poisoned)
        found, total = found + kept, total + of
    return {"corpora": corpora, "patterns": total, "recall": round(found / max(1, total), 4)}


def _poison(random: Random, count: int, corpus: planted.Corpus) -> list[Signal]:
    labels = sorted({one.expected for one in corpus.signals if one.expected})
    pairs = [random.sample(labels, 2) for _ in range(max(1, count // 25))]
    return [
        replace(
            _labelled(f"poison-{random.random()}-{n}", random.choice(pairs), f"sock-{random.randrange(5)}"),
            vector=random.choice(corpus.signals).vector,
        )
        for n in range(count)
    ]


def _is_true(pattern: Pattern, corpus: planted.Corpus) -> bool:
    """Most of its evidence was planted as one fault."""
    faults = [corpus.truth.get(one.signal.signal_id, -1) for one in pattern.evidence]
    best = max(set(faults), key=faults.count)
    return best >= 0 and faults.count(best) * 2 > len(faults)


if __name__ == "__main__":
    main()
