"""What one proposal is written from: the prompt, the evidence that may be quoted, the dev cases. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from libs.contracts.prompts import PromptPart
from libs.embeddings import Vectors
from libs.llm.offline.label_index import Embed, LabelIndex
from libs.llm.offline.labelled_prompt import LabelSpec
from libs.llm.offline.messages import DevCase, Evidence
from libs.llm.offline.quotable_text import quotable


@dataclass(frozen=True)
class Quote:
    """A clean text that may become an example, with its vector and the signals that argue for it."""

    text: str
    vector: Vectors
    signal_ids: tuple[str, ...]


@dataclass(frozen=True)
class Edit:
    """One way to change the prompt: which texts become examples of which label (by number)."""

    choice: str
    additions: Mapping[int, tuple[Quote, ...]]

    @property
    def quotes(self) -> tuple[Quote, ...]:
        """All added texts, over all labels."""
        return tuple(quote for quotes in self.additions.values() for quote in quotes)


@dataclass(frozen=True)
class Dev:
    """The dev cases whose label the prompt knows: what of each text may be quoted ("" where nothing may),
    vectors (n, d), right label and label given now."""

    texts: tuple[str, ...]
    vectors: Vectors
    right: NDArray[np.intp]
    now: NDArray[np.intp]


@dataclass(frozen=True)
class Desk:
    """All that one proposal is written from. `expected` and `got` are numbers of labels."""

    parts: tuple[PromptPart, ...]
    specs: tuple[LabelSpec, ...]
    embed: Embed
    index: LabelIndex
    expected: int
    got: int | None
    quotes: tuple[Quote, ...]
    dev: Dev

    @property
    def known(self) -> set[str]:
        """Examples that the prompt has already, casefolded."""
        return known_examples(self.specs)


def quotes_of(evidence: Sequence[Evidence], expected: str, known: set[str], embed: Embed) -> tuple[Quote, ...]:
    """The evidence that may be quoted, each text once, with all signals that say it."""
    said: dict[str, tuple[str, list[str]]] = {}
    for item in evidence:
        text = quotable(item.text) if item.expected in (None, expected) else None
        if text and text.casefold() not in known:
            said.setdefault(text.casefold(), (text, []))[1].append(item.signal_id)
    vectors = embed([text for text, _ in said.values()])
    quotes = (
        Quote(text, vector, tuple(dict.fromkeys(signal_ids)))
        for (text, signal_ids), vector in zip(said.values(), vectors, strict=True)
    )
    return tuple(quote for quote in quotes if quote.vector.any())


def dev_of(cases: Sequence[DevCase], names: Sequence[str], index: LabelIndex, embed: Embed) -> Dev:
    """The dev cases that the prompt has a label for, and what it answers to them now."""
    number = {name: at for at, name in enumerate(names)}
    usable = [case for case in cases if case.expected in number]
    texts = tuple(quotable(case.input) or "" for case in usable)
    vectors = embed([case.input for case in usable])
    right = np.array([number[case.expected] for case in usable], dtype=np.intp)
    return Dev(texts, vectors, right, index.predicted(vectors))


def known_examples(specs: Sequence[LabelSpec]) -> set[str]:
    """Examples that a prompt has already, casefolded."""
    return {example.casefold() for spec in specs for example in spec.examples}


def signal_ids_of(quotes: Sequence[Quote]) -> tuple[str, ...]:
    """The signals that argue for these texts, each once."""
    return tuple(dict.fromkeys(signal_id for quote in quotes for signal_id in quote.signal_ids))
