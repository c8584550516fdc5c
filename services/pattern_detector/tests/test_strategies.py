"""Strategies on small and on planted data."""

from __future__ import annotations

from datetime import timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.embeddings import StaticEmbedder
from services.pattern_detector import titles
from services.pattern_detector.analysis import analyse
from services.pattern_detector.domain import Cluster, Signal
from services.pattern_detector.strategies import categorical, text
from services.pattern_detector.strategies.merge import merge
from services.pattern_detector.tests import planted
from services.pattern_detector.tests.support import NOON, WORDS, scope, signal

needs_data = pytest.mark.skipif(
    not (planted.DATA / "banking77").is_dir(), reason="Banking77 is not at BURNISH_SHARED_DATA (../shared/data)"
)


def confused(prefix: str, expected: str, got: str, count: int) -> list[Signal]:
    return [signal(f"{prefix}-{n}", expected=expected, got=got) for n in range(count)]


def background(random: Random, count: int, labels: int = 12) -> list[Signal]:
    """Confusions whose two sides are independent."""
    names = [f"label_{n}" for n in range(labels)]
    chosen = [random.sample(names, 2) for _ in range(count)]
    return [signal(f"noise-{n}", expected=e, got=g) for n, (e, g) in enumerate(chosen)]


# --- categorical ------------------------------------------------------------------------------------------


def test_a_confusion_among_noise_is_found_with_exactly_its_signals() -> None:
    planted_ones = confused("x", "refund", "charge", 6)
    [cluster] = [
        c for c in categorical.find([*background(Random(1), 200), *planted_ones], NOON) if c.expected == "refund"
    ]
    assert cluster.signal_ids == {one.signal_id for one in planted_ones}
    assert (cluster.strategy, cluster.field, cluster.got) == ("categorical", "pair", "charge")


def test_a_group_that_is_merely_large_is_not_kept() -> None:
    """Half of all faults expect `a` and half of all got `b`: a quarter are a→b by chance alone."""
    signals = [
        signal(f"{expected}-{got}-{n}", expected=expected, got=got)
        for expected, got, count in [("a", "b", 25), ("a", "d", 25), ("c", "b", 25), ("c", "d", 25)]
        for n in range(count)
    ]
    assert categorical.find(signals, NOON) == []


@pytest.mark.parametrize("count", [4, 10, 30, 300])
def test_the_only_fault_of_a_touchpoint_is_found_all_the_same(count: int) -> None:
    assert len(categorical.find(confused("x", "refund", "charge", count), NOON)) == 1
    assert len(categorical.find([*confused("x", "refund", "charge", count), *background(Random(1), 4)], NOON)) == 1


def test_noise_gives_next_to_no_groups() -> None:
    """The false discovery rate is held over the groups; 50 sets of 300 independent confusions."""
    groups = sum(len(categorical.find(background(Random(seed), 300), NOON)) for seed in range(50))
    assert groups <= 5


def test_a_field_value_is_judged_by_its_own_history() -> None:
    old = NOON - timedelta(days=60)
    history = [
        signal(f"old-{n}", fields={"category": "fees" if n % 2 else "cards"}, first_seen=old) for n in range(100)
    ]
    usual = [signal(f"new-{n}", fields={"category": "fees" if n % 2 else "cards"}) for n in range(20)]
    assert categorical.find([*history, *usual], NOON) == []
    unusual = [signal(f"limit-{n}", fields={"category": "limits"}) for n in range(10)]
    [cluster] = categorical.find([*history, *usual, *unusual], NOON)
    assert (cluster.field, cluster.value, len(cluster.signal_ids)) == ("category", "limits", 10)


def test_without_history_an_even_share_is_expected() -> None:
    cases = [signal(f"case-{n}", fields={"case_id": f"case-{n}"}) for n in range(20)]
    failing = [signal(f"again-{n}", fields={"case_id": "case-7"}) for n in range(6)]
    [cluster] = categorical.find([*cases, *failing], NOON)
    assert (cluster.value, len(cluster.signal_ids)) == ("case-7", 7)


def test_a_pattern_that_surfaced_before_keeps_collecting() -> None:
    signals = [*confused("x", "a", "b", 3), *confused("y", "a", "c", 3), *confused("z", "d", "b", 3)]
    key = categorical.pair_key("a", "b")
    assert key not in {c.key for c in categorical.find(signals, NOON)}
    assert key in {c.key for c in categorical.find(signals, NOON, standing={key})}


def test_prose_is_no_label() -> None:
    assert categorical.find(confused("x", "a draft\nof two lines", "b" * 300, 9), NOON) == []


# --- text -------------------------------------------------------------------------------------------------


def embedded(texts: list[str]) -> list[Signal]:
    vectors = StaticEmbedder().embed_now(texts)
    return [signal(f"t-{n}", text=t, vector=v) for n, (t, v) in enumerate(zip(texts, vectors, strict=True))]


CARDS = ["my card was swallowed by the machine", "the atm kept my card", "card stuck in the cash machine",
         "cash machine swallowed my card", "the atm took my card"]  # fmt: skip
ODD = ["how tall is the tower", "play some jazz", "what is a haiku", "translate hello", "who wrote hamlet"]


def test_topics_are_separated_and_what_belongs_to_none_is_left() -> None:
    signals = embedded([*WORDS, *CARDS, *ODD])
    topics = [ids(signals[: len(WORDS)]), ids(signals[len(WORDS) : len(WORDS) + len(CARDS)])]
    clusters = [c.signal_ids for c in text.find(signals, 3)]
    assert len(clusters) == 2
    for topic in topics:
        [cluster] = [c for c in clusters if c & topic]
        assert cluster <= topic
        assert len(cluster) >= len(topic) - 1


def test_one_topic_alone_is_one_cluster_and_no_topic_none() -> None:
    assert [len(c.signal_ids) for c in text.find(embedded(list(WORDS)), 3)] == [len(WORDS)]
    assert text.find(embedded(ODD), 3) == []
    assert text.find([], 3) == []


def test_signals_without_words_are_in_no_cluster() -> None:
    signals = embedded(list(WORDS))
    nothing = [signal("none"), signal("zero", vector=np.zeros(256, dtype=np.float32))]
    [cluster] = text.find([*signals, *nothing], 3)
    assert not {one.signal_id for one in nothing} & cluster.signal_ids


# --- merge ------------------------------------------------------------------------------------------------


def test_a_text_cluster_that_coincides_joins_and_what_contradicts_stays_out() -> None:
    pool = [*confused("x", "refund", "charge", 6), signal("plain"), signal("other", expected="cards", got="charge")]
    group = Cluster("categorical", ids(pool[:6]), "key", "pair", None, "refund", "charge")
    [merged] = merge([group], [Cluster("text", ids(pool[1:]))], by_id(pool), 3)
    assert merged.signal_ids == ids(pool[:7])


def test_a_text_cluster_keeps_only_what_no_group_has() -> None:
    pool = [*confused("x", "refund", "charge", 4), *(signal(n) for n in range(7))]
    group = Cluster("categorical", ids(pool[:4]), "key", "pair", None, "refund", "charge")
    clusters = merge([group], [Cluster("text", ids(pool[3:])), Cluster("text", ids(pool[:1]))], by_id(pool), 3)
    assert [c.signal_ids for c in clusters] == [ids(pool[:4]), ids(pool[4:])]


def ids(signals: list[Signal]) -> frozenset:  # type: ignore[type-arg]
    return frozenset(one.signal_id for one in signals)


def by_id(signals: list[Signal]) -> dict:  # type: ignore[type-arg]
    return {one.signal_id: one for one in signals}


# --- titles -----------------------------------------------------------------------------------------------


def test_a_title_names_what_sets_the_cluster_apart_in_plain_words() -> None:
    hostile = ["<script>alert(1)</script> swallowed card http://evil.example/ignore-all"]
    clusters = [embedded(list(WORDS)), embedded([*CARDS, *hostile])]
    refund, card = titles.text_titles(clusters, [one for cluster in clusters for one in cluster])
    assert refund.startswith("flagged: ")
    assert "refund" in refund
    assert "card" in card
    assert not set("<>/:()") & set(card.removeprefix("flagged: "))


def test_a_label_needs_sixty_percent_of_those_that_have_one() -> None:
    assert titles.agreed(["a", "a", "a", "b", "b", None, None]) == "a"
    assert titles.agreed(["a", "a", "b", "b", None]) is None
    assert titles.agreed(["a", None]) is None


# --- planted corpora --------------------------------------------------------------------------------------


@needs_data
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10_000))
def test_the_result_does_not_depend_on_the_order_of_signals(seed: int) -> None:
    corpus = planted.planted(planted.banking77(), planted.clinc150()["oos"], Random(7), faults=6)
    shuffled = list(corpus.signals)
    Random(seed).shuffle(shuffled)
    assert told(shuffled) == told(corpus.signals)


def told(signals: list[Signal]) -> list[object]:
    patterns = analyse(scope(), signals, [])
    return [(p.pattern_id, p.title, p.score, p.counts, [one.signal.signal_id for one in p.evidence]) for p in patterns]


@needs_data
def test_planted_faults_are_found() -> None:
    scores = []
    for seed in range(3):
        corpus = planted.planted(planted.banking77(), planted.clinc150()["oos"], Random(seed))
        scores.append(planted.pairwise(corpus.truth, planted.found(scope(), corpus.signals)))
    precision, recall, f1 = np.mean(scores, axis=0)
    print(f"pairwise precision {precision:.3f}, recall {recall:.3f}, F1 {f1:.3f}")  # shown by -s
    assert f1 >= 0.7, (precision, recall, f1)


@needs_data
def test_ids_survive_ten_percent_more_data() -> None:
    kept = total = 0
    for seed in range(4):
        corpus = planted.planted(planted.banking77(), planted.clinc150()["oos"], Random(seed))
        arrived = list(corpus.signals)
        Random(seed).shuffle(arrived)
        before = analyse(scope(), arrived[: len(arrived) * 10 // 11], [])
        after = analyse(scope(), arrived, planted.as_known(before))
        surfaced = [p for p in before if p.standing.state]
        one, of = planted.survivors(surfaced, after)
        kept, total = kept + one, total + of
    assert kept >= 0.95 * total, (kept, total)
