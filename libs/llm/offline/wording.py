"""What a proposal says of itself: rationale, expected impact, risks, guidance. Pure."""

from libs.llm.offline.desk import Desk
from libs.llm.offline.messages import Impact, ProposalDraft
from libs.llm.offline.trials import Trial

BY_RULE = "Written by rule by the offline provider."
_FEW = 3
"""Fewer added texts than this are called very few."""


def draft(desk: Desk, trial: Trial, offered: int) -> ProposalDraft:
    """The proposal of the best trial; `offered` counts the evidence that was given."""
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


def _rationale(desk: Desk, trial: Trial, offered: int) -> str:
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


def _impact(desk: Desk, trial: Trial) -> tuple[Impact, ...]:
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


def _risks(desk: Desk, trial: Trial) -> tuple[str, ...]:
    expected = desk.specs[desk.expected].name
    risks = [f"Inputs near the border of '{expected}' may move to it that belong to another label."]
    if not desk.dev.texts:
        risks.append("There were no dev cases to try it on, so what it breaks is unknown.")
    elif trial.gained <= trial.lost:
        risks.append("No edit that was tried gained more dev cases than it lost; this one did least harm.")
    if len(trial.edit.additions[desk.expected]) < _FEW:
        risks.append("It rests on very few texts.")
    return tuple(risks)


def nothing(reason: str) -> ProposalDraft:
    """A proposal without hunks, which says why."""
    return ProposalDraft(rationale=f"{BY_RULE} No change is proposed. {reason}")
