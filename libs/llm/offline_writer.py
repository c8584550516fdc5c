"""How the offline provider writes a proposal: by rule, from the evidence, tried on the dev cases. Pure.

For a pattern "X was expected, Y was given" it adds the most telling evidence texts as examples of X. Several
such edits are made, each as a whole prompt; each is tried with the offline classifier on the dev cases and on
the evidence that it does not quote, and the best is proposed. The hidden test cases may disagree: that is
what the A/B is for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from libs.embeddings import Vectors
from libs.llm.base import PromptError
from libs.llm.evidence_text import quotable
from libs.llm.example_hunks import with_examples
from libs.llm.offline_labels import Embed, LabelIndex
from libs.llm.skill_file import LabelSpec, join_parts, parse_labels

BY_RULE = "Written by rule by the offline provider."

_EXAMPLES = (5, 3, 1)
_MOST_BORDER_EXAMPLES = 3
_EVIDENCE_WEIGHT = 0.25
"""Evidence is faults only: it can show what an edit gains and never what it breaks. Dev cases show both. Any
weight from 0.1 to 0.5 does as well on Banking77 (held-out train, 60 patterns); of equal edits the smaller did
better: 17 % of the edits chosen so lose more than they gain, against 38 % of always adding five."""


class PromptPart(BaseModel):
    """One file or field of a prompt."""

    model_config = ConfigDict(frozen=True)
    path: str
    text: str


class Evidence(BaseModel):
    """One signal's text and, where known, which label was right and which was given."""

    model_config = ConfigDict(frozen=True)
    signal_id: str
    text: str
    expected: str | None = None
    got: str | None = None


class PatternBrief(BaseModel):
    """The pattern that a proposal is asked for."""

    model_config = ConfigDict(frozen=True)
    title: str = ""
    strategy: str = ""
    expected: str | None = None
    got: str | None = None
    evidence: tuple[Evidence, ...] = ()


class DevCase(BaseModel):
    """One case of the suite's dev split."""

    model_config = ConfigDict(frozen=True)
    input: str
    expected: str


class ProposeInput(BaseModel):
    """`ModelRequest.input` of the task `propose`, as JSON."""

    model_config = ConfigDict(frozen=True)
    touchpoint_id: str
    prompt: tuple[PromptPart, ...]
    pattern: PatternBrief
    dev_cases: tuple[DevCase, ...] = ()


class HunkDraft(BaseModel):
    """One replaced passage: `before` occurs exactly once in the part at `path`, and in no other part."""

    model_config = ConfigDict(frozen=True)
    path: str
    before: str
    after: str
    signal_ids: tuple[str, ...]


class Impact(BaseModel):
    """What the writer expects of a metric; `confidence` is between 0 and 1."""

    model_config = ConfigDict(frozen=True)
    metric: str
    direction: Literal["increase", "decrease"]
    magnitude: Literal["small", "medium", "large"]
    confidence: float


class ProposalDraft(BaseModel):
    """`ModelReply.data` of the task `propose`. No hunks means that there is nothing to propose, and the
    rationale says why."""

    model_config = ConfigDict(frozen=True)
    hunks: tuple[HunkDraft, ...] = ()
    rationale: str
    expected_impact: tuple[Impact, ...] = ()
    risks: tuple[str, ...] = ()
    review_guidance: str = ""


@dataclass(frozen=True)
class _Quote:
    """A clean text that may become an example, with its vector and the signals that argue for it."""

    text: str
    vector: Vectors
    signal_ids: tuple[str, ...]


@dataclass(frozen=True)
class _Edit:
    """One way to change the prompt: which texts become examples of which label (by number)."""

    choice: str
    additions: Mapping[int, tuple[_Quote, ...]]

    @property
    def quotes(self) -> tuple[_Quote, ...]:
        return tuple(quote for quotes in self.additions.values() for quote in quotes)


@dataclass(frozen=True)
class _Trial:
    """An edit, its hunks, and what the classifier did with the changed prompt.

    `gained` and `lost` count dev cases that the edit does not quote, `evidence_gained` such evidence.
    """

    edit: _Edit
    hunks: tuple[HunkDraft, ...]
    dev_labels: NDArray[np.intp]
    gained: int
    lost: int
    evidence_gained: int

    @property
    def worth(self) -> tuple[float, int]:
        return self.gained - self.lost + _EVIDENCE_WEIGHT * self.evidence_gained, -len(self.edit.quotes)


@dataclass(frozen=True)
class _Dev:
    """The dev cases whose label the prompt knows: what of each text may be quoted ("" where nothing may),
    vectors (n, d), right label and label given now."""

    texts: tuple[str, ...]
    vectors: Vectors
    right: NDArray[np.intp]
    now: NDArray[np.intp]


@dataclass(frozen=True)
class _Desk:
    """All that one proposal is written from. `expected` and `got` are numbers of labels."""

    parts: tuple[PromptPart, ...]
    specs: tuple[LabelSpec, ...]
    embed: Embed
    index: LabelIndex
    expected: int
    got: int | None
    quotes: tuple[_Quote, ...]
    dev: _Dev

    @property
    def known(self) -> set[str]:
        """Examples that the prompt has already, casefolded."""
        return _examples(self.specs)


def write_proposal(asked: ProposeInput, embed: Embed) -> ProposalDraft:
    """A proposal for the pattern, or one without hunks that says why there is none. Content never raises."""
    try:
        specs = parse_labels(join_parts(part.text for part in asked.prompt))
    except PromptError as error:
        return _nothing(f"The prompt has no labels to add examples to ({error.reason}).")
    names = [spec.name for spec in specs]
    expected = asked.pattern.expected or _most_common(item.expected for item in asked.pattern.evidence)
    if expected is None:
        return _nothing("Neither the pattern nor its evidence says which label was expected.")
    if expected not in names:
        return _nothing("The label that was expected is not a label of the prompt.")
    got = asked.pattern.got or _most_common(item.got for item in asked.pattern.evidence)
    embed = _remembering(embed)
    quotes = _quotes(asked.pattern.evidence, expected, _examples(specs), embed)
    if not quotes:
        return _nothing(
            "None of the evidence can be quoted: each text is blank, already in the prompt, about another "
            "label, or contains an address, a long number or an instruction."
        )
    index = LabelIndex.build(specs, embed)
    desk = _Desk(
        parts=asked.prompt,
        specs=tuple(specs),
        embed=embed,
        index=index,
        expected=names.index(expected),
        got=names.index(got) if got in names and got != expected else None,
        quotes=quotes,
        dev=_dev(asked.dev_cases, names, index, embed),
    )
    best = _best_trial(desk)
    if best is None:
        return _nothing("The passage to change cannot be told apart from the rest of the prompt.")
    return _draft(desk, best, offered=len(asked.pattern.evidence))


def _best_trial(desk: _Desk) -> _Trial | None:
    plain = [trial for edit in _edits(desk) if (trial := _try(desk, edit))]
    bordered = [_bordered(desk, trial) for trial in plain]
    held = [trial for edit in bordered if edit and (trial := _try(desk, edit))]
    return max([*plain, *held], key=lambda trial: trial.worth, default=None)


# -- which texts -----------------------------------------------------------------------------------


def _quotes(evidence: Sequence[Evidence], expected: str, known: set[str], embed: Embed) -> tuple[_Quote, ...]:
    """The evidence that may be quoted, each text once, with all signals that say it."""
    said: dict[str, tuple[str, list[str]]] = {}
    for item in evidence:
        text = quotable(item.text) if item.expected in (None, expected) else None
        if text and text.casefold() not in known:
            said.setdefault(text.casefold(), (text, []))[1].append(item.signal_id)
    vectors = embed([text for text, _ in said.values()])
    quotes = (
        _Quote(text, vector, tuple(dict.fromkeys(signal_ids)))
        for (text, signal_ids), vector in zip(said.values(), vectors, strict=True)
    )
    return tuple(quote for quote in quotes if quote.vector.any())


def _edits(desk: _Desk) -> Iterator[_Edit]:
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
                yield _Edit(choice, {desk.expected: picked})


def _opposite(desk: _Desk) -> Vectors:
    """What the texts must be told apart from: the label that was given, or all labels."""
    centroids = desk.index.centroids
    mean: Vectors = centroids.mean(axis=0)
    return mean if desk.got is None else centroids[desk.got]


def _bordered(desk: _Desk, trial: _Trial) -> _Edit | None:
    """The same edit, and examples for the label that loses most by it, from the dev cases that it loses."""
    dev = desk.dev
    lost = (dev.now == dev.right) & (trial.dev_labels == desk.expected) & (dev.right != desk.expected)
    if not lost.any():
        return None
    loser = int(np.bincount(dev.right[lost]).argmax())
    picked = _border_quotes(desk, trial.edit, np.flatnonzero(lost & (dev.right == loser)))
    if not picked:
        return None
    return _Edit(trial.edit.choice, {**trial.edit.additions, loser: picked})


def _border_quotes(desk: _Desk, edit: _Edit, rows: NDArray[np.intp]) -> tuple[_Quote, ...]:
    """Dev texts, central first. The signals that argue for the edit argue for what balances it."""
    vectors = desk.dev.vectors[rows]
    order = np.argsort(-np.round(np.vecdot(vectors, vectors.mean(axis=0)), 6), kind="stable")
    taken = desk.known | {quote.text.casefold() for quote in desk.quotes}
    signal_ids = _signal_ids(edit.quotes)
    picked: dict[str, _Quote] = {}
    for row in rows[order]:
        text = desk.dev.texts[row]
        if text and text.casefold() not in taken:
            picked.setdefault(text.casefold(), _Quote(text, desk.dev.vectors[row], signal_ids))
    return tuple(picked.values())[:_MOST_BORDER_EXAMPLES]


# -- trying an edit --------------------------------------------------------------------------------


def _dev(cases: Sequence[DevCase], names: Sequence[str], index: LabelIndex, embed: Embed) -> _Dev:
    number = {name: at for at, name in enumerate(names)}
    usable = [case for case in cases if case.expected in number]
    texts = tuple(quotable(case.input) or "" for case in usable)
    vectors = embed([case.input for case in usable])
    right = np.array([number[case.expected] for case in usable], dtype=np.intp)
    return _Dev(texts, vectors, right, index.predicted(vectors))


def _try(desk: _Desk, edit: _Edit) -> _Trial | None:
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
    return _Trial(
        edit=edit,
        hunks=hunks,
        dev_labels=dev_labels,
        gained=int((now & ~was & fair).sum()),
        lost=int((was & ~now & fair).sum()),
        evidence_gained=_hits(index, rest, desk.expected) - _hits(desk.index, rest, desk.expected),
    )


def _hits(index: LabelIndex, vectors: Sequence[Vectors], label: int) -> int:
    return int((index.predicted(np.stack(vectors)) == label).sum()) if vectors else 0


def _hunks(desk: _Desk, edit: _Edit) -> tuple[HunkDraft, ...] | None:
    texts = [part.text for part in desk.parts]
    hunks = []
    for label, quotes in edit.additions.items():
        passage = with_examples(texts, desk.specs[label], [quote.text for quote in quotes])
        if passage is None:
            return None
        path = desk.parts[passage.part].path
        hunks.append(HunkDraft(path=path, before=passage.before, after=passage.after, signal_ids=_signal_ids(quotes)))
    return tuple(hunks)


def _applied(desk: _Desk, hunks: Sequence[HunkDraft]) -> list[LabelSpec] | None:
    """The labels of the prompt with the hunks applied; None when it can no longer be read."""
    texts = {part.path: part.text for part in desk.parts}
    for hunk in hunks:
        texts[hunk.path] = texts[hunk.path].replace(hunk.before, hunk.after, 1)
    try:
        return parse_labels(join_parts(texts.values()))
    except PromptError:
        return None


def _as_meant(before: Sequence[LabelSpec], after: Sequence[LabelSpec], edit: _Edit) -> bool:
    """Whether the only difference is the added examples, in order."""
    added = {label: tuple(quote.text for quote in quotes) for label, quotes in edit.additions.items()}
    meant = [(s.name, s.description, s.examples + added.get(at, ())) for at, s in enumerate(before)]
    return meant == [(s.name, s.description, s.examples) for s in after]


# -- saying it -------------------------------------------------------------------------------------


def _draft(desk: _Desk, trial: _Trial, offered: int) -> ProposalDraft:
    return ProposalDraft(
        hunks=trial.hunks,
        rationale=_rationale(desk, trial, offered),
        expected_impact=_impact(desk, trial),
        risks=_risks(desk, trial),
        review_guidance=(
            f"Read each added line: is '{desk.specs[desk.expected].name}' the right answer to it, for "
            "everybody who might say it? Then run the A/B on the test split; the dev figures above chose this edit and "
            "flatter it."
        ),
    )


def _rationale(desk: _Desk, trial: _Trial, offered: int) -> str:
    expected = desk.specs[desk.expected].name
    given = "another label" if desk.got is None else f"'{desk.specs[desk.got].name}'"
    added = len(trial.edit.additions[desk.expected])
    sentences = [
        BY_RULE,
        f"'{expected}' was expected and {given} was given.",
        f"Of {offered} pieces of evidence {len(desk.quotes)} distinct texts can be quoted.",
        f"{added} of them, chosen as {trial.edit.choice}, become examples of '{expected}'.",
    ]
    for label, quotes in trial.edit.additions.items():
        if label != desk.expected:
            sentences.append(
                f"{len(quotes)} dev cases of '{desk.specs[label].name}' that this would have lost become "
                "examples of their own label, to hold the border."
            )
    if desk.dev.texts:
        sentences.append(
            f"Tried with the offline classifier on {len(desk.dev.texts)} dev cases, without those quoted: "
            f"{trial.gained} gained, {trial.lost} lost."
        )
    return " ".join(sentences)


def _impact(desk: _Desk, trial: _Trial) -> tuple[Impact, ...]:
    """Accuracy over all dev cases that the edit does not quote, as far as the dev cases tell.

    Magnitude: small below half a point, large from two points. Confidence: the share of changed cases that
    changed that way, shrunk towards a half (Laplace): 0.5 where nothing changed.
    """
    gained, lost = trial.gained, trial.lost
    share = abs(gained - lost) / max(1, len(desk.dev.texts))
    accuracy = Impact(
        metric="accuracy",
        direction="increase" if gained >= lost else "decrease",
        magnitude="small" if share < 0.005 else "medium" if share < 0.02 else "large",
        confidence=round((max(gained, lost) + 1) / (gained + lost + 2), 2),
    )
    return (accuracy,)


def _risks(desk: _Desk, trial: _Trial) -> tuple[str, ...]:
    expected = desk.specs[desk.expected].name
    risks = [f"Inputs near the border of '{expected}' may move to it that belong to another label."]
    if not desk.dev.texts:
        risks.append("There were no dev cases to try it on, so what it breaks is unknown.")
    elif trial.gained <= trial.lost:
        risks.append("No edit that was tried gained more dev cases than it lost; this one did least harm.")
    if len(trial.edit.additions[desk.expected]) < min(_EXAMPLES[0], 3):
        risks.append("It rests on very few texts.")
    return tuple(risks)


def _nothing(reason: str) -> ProposalDraft:
    return ProposalDraft(rationale=f"{BY_RULE} No change is proposed. {reason}")


# -- small things ----------------------------------------------------------------------------------


def _examples(specs: Sequence[LabelSpec]) -> set[str]:
    return {example.casefold() for spec in specs for example in spec.examples}


def _signal_ids(quotes: Sequence[_Quote]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(signal_id for quote in quotes for signal_id in quote.signal_ids))


def _most_common(values: Iterable[str | None]) -> str | None:
    """The most frequent value; of several the one that comes first in the alphabet."""
    counts = Counter(value for value in values if value)
    return min(counts, key=lambda value: (-counts[value], value), default=None)


def _remembering(embed: Embed) -> Embed:
    """The same embedder, asked only once for each text: edits differ in a few texts of many."""
    known: dict[str, Vectors] = {}

    def remembered(texts: Sequence[str]) -> Vectors:
        new = list(dict.fromkeys(text for text in texts if text not in known))
        known.update(zip(new, embed(new), strict=True))
        return np.stack([known[text] for text in texts]) if texts else embed([])

    return remembered
