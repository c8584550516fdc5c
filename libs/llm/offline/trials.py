"""An edit as hunks, applied, read back, and run with the offline classifier. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libs.embeddings import Vectors
from libs.llm.base import PromptError
from libs.llm.offline.desk import Desk, Edit, signal_ids_of
from libs.llm.offline.example_hunks import with_examples
from libs.llm.offline.label_index import LabelIndex
from libs.llm.offline.labelled_prompt import LabelSpec, parse_labels
from libs.llm.offline.messages import HunkDraft
from libs.llm.prompt import join_parts

_EVIDENCE_WEIGHT = 0.25
"""Evidence is faults only: it can show what an edit gains and never what it breaks. Dev cases show both. Any
weight from 0.1 to 0.5 does as well on Banking77 (held-out train, 60 patterns); of equal edits the smaller did
better: 17 % of the edits chosen so lose more than they gain, against 38 % of always adding five."""


@dataclass(frozen=True)
class Trial:
    """An edit, its hunks, and what the classifier did with the changed prompt.

    `gained` and `lost` count dev cases that the edit does not quote, `evidence_gained` such evidence.
    """

    edit: Edit
    hunks: tuple[HunkDraft, ...]
    dev_labels: NDArray[np.intp]
    gained: int
    lost: int
    evidence_gained: int

    @property
    def worth(self) -> tuple[float, int]:
        """What edits are ordered by: net gain, then fewer added texts."""
        return self.gained - self.lost + _EVIDENCE_WEIGHT * self.evidence_gained, -len(self.edit.quotes)


def tried(desk: Desk, edit: Edit) -> Trial | None:
    """The edit as hunks, applied, read back and run; None when what is read back is not what is meant."""
    hunks = _hunks(desk, edit)
    changed = _applied(desk, hunks) if hunks else None
    if hunks is None or changed is None or not _as_meant(desk.specs, changed, edit):
        return None
    index = LabelIndex.build(changed, desk.embed)
    dev_labels = index.predicted(desk.dev.vectors)
    quoted = {quote.text.casefold() for quote in edit.quotes}
    fair = np.array([text.casefold() not in quoted for text in desk.dev.texts], dtype=bool)
    was, now = desk.dev.now == desk.dev.right, dev_labels == desk.dev.right
    rest = [quote.vector for quote in desk.quotes if quote.text.casefold() not in quoted]
    return Trial(
        edit=edit,
        hunks=hunks,
        dev_labels=dev_labels,
        gained=int((now & ~was & fair).sum()),
        lost=int((was & ~now & fair).sum()),
        evidence_gained=_hits(index, rest, desk.expected) - _hits(desk.index, rest, desk.expected),
    )


def _hits(index: LabelIndex, vectors: Sequence[Vectors], label: int) -> int:
    return int((index.predicted(np.stack(vectors)) == label).sum()) if vectors else 0


def _hunks(desk: Desk, edit: Edit) -> tuple[HunkDraft, ...] | None:
    texts = [part.text for part in desk.parts]
    hunks = []
    for label, quotes in edit.additions.items():
        passage = with_examples(texts, desk.specs[label], [quote.text for quote in quotes])
        if passage is None:
            return None
        path = desk.parts[passage.part].path
        hunks.append(HunkDraft(path=path, before=passage.before, after=passage.after, signal_ids=signal_ids_of(quotes)))
    return tuple(hunks)


def _applied(desk: Desk, hunks: Sequence[HunkDraft]) -> list[LabelSpec] | None:
    """The labels of the prompt with the hunks applied; None when it can no longer be read."""
    texts = {part.path: part.text for part in desk.parts}
    for hunk in hunks:
        texts[hunk.path] = texts[hunk.path].replace(hunk.before, hunk.after, 1)
    try:
        return parse_labels(join_parts(texts.values()))
    except PromptError:
        return None


def _as_meant(before: Sequence[LabelSpec], after: Sequence[LabelSpec], edit: Edit) -> bool:
    """Whether the only difference is the added examples, in order."""
    added = {label: tuple(quote.text for quote in quotes) for label, quotes in edit.additions.items()}
    meant = [(s.name, s.description, s.examples + added.get(at, ())) for at, s in enumerate(before)]
    return meant == [(s.name, s.description, s.examples) for s in after]
