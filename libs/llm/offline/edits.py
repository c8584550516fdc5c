"""Which texts become examples of which label: the edits that are worth a trial. Pure."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from libs.embeddings import Vectors
from libs.llm.offline.desk import Desk, Edit, Quote, signal_ids_of
from libs.llm.offline.trials import Trial

_EXAMPLES = (5, 3, 1)
_MOST_BORDER_EXAMPLES = 3


def edits(desk: Desk) -> Iterator[Edit]:
    """The most central evidence texts, and those that are also furthest from what was given; 5, 3 and 1."""
    vectors = np.stack([quote.vector for quote in desk.quotes])
    central = np.vecdot(vectors, vectors.mean(axis=0))
    telling = central - np.vecdot(vectors, _opposite(desk))
    seen: set[frozenset[str]] = set()
    for most in _EXAMPLES:
        for choice, worth in (("the most central", central), ("central and distinct", telling)):
            order = np.argsort(-np.round(worth, 6), kind="stable")
            picked = tuple(desk.quotes[at] for at in order[:most])
            texts = frozenset(quote.text for quote in picked)
            if texts not in seen:
                seen.add(texts)
                yield Edit(choice, {desk.expected: picked})


def _opposite(desk: Desk) -> Vectors:
    """What the texts must be told apart from: the label that was given, or all labels."""
    centroids = desk.index.centroids
    mean: Vectors = centroids.mean(axis=0)
    return mean if desk.got is None else centroids[desk.got]


def bordered(desk: Desk, trial: Trial) -> Edit | None:
    """The same edit, and examples for the label that loses most by it, from the dev cases that it loses."""
    dev = desk.dev
    lost = (dev.now == dev.right) & (trial.dev_labels == desk.expected) & (dev.right != desk.expected)
    if not lost.any():
        return None
    loser = int(np.bincount(dev.right[lost]).argmax())
    picked = _border_quotes(desk, trial.edit, np.flatnonzero(lost & (dev.right == loser)))
    if not picked:
        return None
    return Edit(trial.edit.choice, {**trial.edit.additions, loser: picked})


def _border_quotes(desk: Desk, edit: Edit, rows: NDArray[np.intp]) -> tuple[Quote, ...]:
    """Dev texts, central first. The signals that argue for the edit argue for what balances it."""
    vectors = desk.dev.vectors[rows]
    order = np.argsort(-np.round(np.vecdot(vectors, vectors.mean(axis=0)), 6), kind="stable")
    taken = desk.known | {quote.text.casefold() for quote in desk.quotes}
    signal_ids = signal_ids_of(edit.quotes)
    picked: dict[str, Quote] = {}
    for row in rows[order]:
        text = desk.dev.texts[row]
        if text and text.casefold() not in taken:
            picked.setdefault(text.casefold(), Quote(text, desk.dev.vectors[row], signal_ids))
    return tuple(picked.values())[:_MOST_BORDER_EXAMPLES]
