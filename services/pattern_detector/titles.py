"""Titles that a person can read. Pure.

Signal text is untrusted: a title takes single words of letters from it, never a passage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

from libs.contracts.vocabulary import SignalType
from services.pattern_detector.domain import Cluster, Signal

AGREE = 0.6
"""Share of a text cluster's signals with a label that must name the same one for it to be the pattern's."""

LONGEST = 200
_TERMS = 3
_SHARE = 0.2
_WORD = r"(?u)\b[^\W\d_][^\W\d_'’]{2,29}\b"
_LEAD: dict[SignalType, str] = {
    "flag": "flagged",
    "low_confidence": "low confidence",
    "human_edit": "edited by people",
    "eval_regression": "failing cases",
    "governance_finding": "governance finding",
}


def categorical_title(cluster: Cluster) -> str:
    """`X answered as Y` for a pair, `field: value` for a field; labels keep their names."""
    if cluster.field == "pair":
        return f"{cluster.expected} answered as {cluster.got}"[:LONGEST]
    return f"{(cluster.field or '').replace('_', ' ')}: {cluster.value}"[:LONGEST]


def text_titles(clusters: Sequence[Sequence[Signal]], everything: Sequence[Signal]) -> list[str]:
    """A title for each text cluster: what kind of signals, and the terms that set it apart."""
    if not clusters:
        return []
    by_input = distinctive_terms(
        [[_input(s) for s in members] for members in clusters], [_input(s) for s in everything]
    )
    by_reason = distinctive_terms([[s.reason for s in members] for members in clusters], [s.reason for s in everything])
    return [
        f"{_lead(members)}: {', '.join(inputs or reasons) or 'similar texts'}"[:LONGEST]
        for members, inputs, reasons in zip(clusters, by_input, by_reason, strict=True)
    ]


def agreed(values: Sequence[str | None]) -> str | None:
    """The label that at least `AGREE` of those that have one name, from two on."""
    known = Counter(value for value in values if value is not None)
    if not known:
        return None
    label, count = min(known.items(), key=lambda item: (-item[1], item[0]))
    return label if count >= 2 and count >= AGREE * known.total() else None


def distinctive_terms(clusters: Sequence[Sequence[str]], everything: Sequence[str]) -> list[list[str]]:
    """The three terms (words and pairs of words) of each cluster with the highest c-TF-IDF.

    c-TF-IDF (Grootendorst 2022, arXiv:2203.05794): a term's share of the cluster's words × log(1 + A / f), with f
    its count over everything and A the mean count of words of a text class. Counted once a text, so that one long
    or repeated text does not name the cluster; a term must occur in a fifth of the texts to name it.
    """
    counter = CountVectorizer(
        ngram_range=(1, 2), stop_words="english", token_pattern=_WORD, binary=True, lowercase=True
    )
    try:
        whole = np.asarray(counter.fit_transform(everything).sum(axis=0)).ravel()
    except ValueError:  # no text has a word that is left
        return [[] for _ in clusters]
    names = counter.get_feature_names_out()
    mean = whole.sum() / max(1, len(clusters))
    found = []
    for texts in clusters:
        counts = np.asarray(counter.transform(texts).sum(axis=0)).ravel()
        weights = counts / max(1, counts.sum()) * np.log1p(mean / whole)
        found.append(_told(names, np.where(counts >= max(min(2, len(texts)), _SHARE * len(texts)), weights, 0.0)))
    return found


def _told(names: NDArray[Any], weights: NDArray[np.float64]) -> list[str]:
    """The best terms, none of which repeats a word of a better one."""
    told: list[str] = []
    words: set[str] = set()
    for position in np.lexsort((names, -np.round(weights, 12))):
        term = str(names[position])
        if weights[position] <= 0 or len(told) == _TERMS:
            break
        if not words & set(term.split()):
            told.append(term)
            words |= set(term.split())
    return told


def _input(signal: Signal) -> str:
    """The input; the reason only where there is no input, since reasons repeat the words of complaint."""
    return signal.text or signal.reason


def _lead(members: Sequence[Signal]) -> str:
    kinds = Counter(signal.signal_type for signal in members)
    return _LEAD[min(kinds, key=lambda kind: (-kinds[kind], kind))]
