"""How the offline provider writes a proposal: by rule, from the evidence, tried on the dev cases. Pure.

For a pattern "X was expected, Y was given" it adds the most telling evidence texts as examples of X. Several
such edits are made, each as a whole prompt; each is tried with the offline classifier on the dev cases and on
the evidence that it does not quote, and the best is proposed. The hidden test cases may disagree: that is
what the A/B is for.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from libs.embeddings import Vectors
from libs.llm.base import PromptError
from libs.llm.offline.desk import Desk, dev_of, known_examples, quotes_of
from libs.llm.offline.edits import bordered, edits
from libs.llm.offline.label_index import Embed, LabelIndex
from libs.llm.offline.labelled_prompt import parse_labels
from libs.llm.offline.messages import ProposalDraft, ProposeInput
from libs.llm.offline.trials import Trial, tried
from libs.llm.offline.wording import draft, nothing
from libs.llm.prompt import join_parts


def write_proposal(asked: ProposeInput, embed: Embed) -> ProposalDraft:
    """A proposal for the pattern, or one without hunks that says why there is none. Content never raises."""
    try:
        specs = parse_labels(join_parts(part.text for part in asked.prompt))
    except PromptError as error:
        return nothing(f"The prompt has no labels to add examples to ({error.reason}).")
    names = [spec.name for spec in specs]
    expected = asked.pattern.expected or _most_common(item.expected for item in asked.pattern.evidence)
    if expected is None:
        return nothing("Neither the pattern nor its evidence says which label was expected.")
    if expected not in names:
        return nothing("The label that was expected is not a label of the prompt.")
    got = asked.pattern.got or _most_common(item.got for item in asked.pattern.evidence)
    embed = _remembering(embed)
    quotes = quotes_of(asked.pattern.evidence, expected, known_examples(specs), embed)
    if not quotes:
        return nothing(
            "None of the evidence can be quoted: each text is blank, already in the prompt, about another "
            "label, or contains an address, a long number or an instruction."
        )
    index = LabelIndex.build(specs, embed)
    desk = Desk(
        parts=asked.prompt,
        specs=tuple(specs),
        embed=embed,
        index=index,
        expected=names.index(expected),
        got=names.index(got) if got in names and got != expected else None,
        quotes=quotes,
        dev=dev_of(asked.dev_cases, names, index, embed),
    )
    best = _best_trial(desk)
    if best is None:
        return nothing("The passage to change cannot be told apart from the rest of the prompt.")
    return draft(desk, best, offered=len(asked.pattern.evidence))


def _best_trial(desk: Desk) -> Trial | None:
    plain = [trial for edit in edits(desk) if (trial := tried(desk, edit))]
    held = [trial for one in plain if (edit := bordered(desk, one)) and (trial := tried(desk, edit))]
    return max([*plain, *held], key=lambda trial: trial.worth, default=None)


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
