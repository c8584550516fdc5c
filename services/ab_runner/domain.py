"""What a suite, a run and a shard are: content hashes, checks, dealing of cases, leaks. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Literal
from uuid import UUID

from libs.contracts.evaluations import Case, Variant
from libs.contracts.prompts import content_sha256
from libs.contracts.touchpoints import ModelSettings, SuiteSettings
from libs.contracts.vocabulary import Split
from services.ab_runner.suite_metrics import CLASSIFICATION

Arm = Literal["a", "b"]
ARMS: tuple[Arm, Arm] = ("a", "b")

SHORT_CHARS = 12
"""Inputs below this length ("yes please") occur within other texts by chance: only a whole text or line counts."""

_NAMED_AT_MOST = 5


class SuiteError(ValueError):
    """Cases that cannot be a suite; the message names the cases and what would be right."""


class CannotRun(Exception):
    """A run that cannot be carried out; the message says why, without quoting a prompt."""


# --- suites -----------------------------------------------------------------------------------------------


def suite_sha256(cases: Iterable[Case]) -> str:
    """Hex SHA-256 over the cases sorted by id, each a JSON array and a newline; their order does not matter."""
    digest = sha256(b"burnish-suite-v1\n")
    for case in sorted(cases, key=lambda c: c.case_id):
        fields = [case.case_id, case.input, case.expected, case.split, case.cluster]
        digest.update(json.dumps(fields, separators=(",", ":")).encode())
        digest.update(b"\n")
    return digest.hexdigest()


def input_sha256(text: str) -> str:
    """Hex SHA-256 of what the model is given of a case. The expected label is no part of it: a corrected label
    costs no new answer."""
    return sha256(text.encode()).hexdigest()


def check_suite(cases: Sequence[Case]) -> None:
    """Raises SuiteError: a blank field, an id twice, an input in both splits."""
    seen: set[str] = set()
    for case in cases:
        _check_case(case)
        if case.case_id in seen:
            raise SuiteError(f"case id {case.case_id!r} occurs twice; every case has its own")
        seen.add(case.case_id)
    dev = {normalised(case.input): case.case_id for case in cases if case.split == "dev"}
    for case in cases:
        if case.split == "test" and (other := dev.get(normalised(case.input))) is not None:
            raise SuiteError(
                f"dev case {other!r} and test case {case.case_id!r} have the same input; "
                "writers of proposals see the dev split, so remove one of them"
            )


def _check_case(case: Case) -> None:
    for name, text in (("input", case.input), ("expected", case.expected)):
        if not text.strip():
            raise SuiteError(f"case {case.case_id!r} has a blank {name!r}")


def normalised(text: str) -> str:
    """Text as it is compared for leaks: NFKC, casefolded, runs of white space as one blank."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


class Gold:
    """Inputs that nobody who writes prompts may see."""

    def __init__(self, inputs: Iterable[str]) -> None:
        known = {normalised(text) for text in inputs}
        self._short = {text for text in known if len(text) < SHORT_CHARS}
        self._long = sorted(known - self._short)
        self._all_long = "\n".join(self._long)  # no normalised text has a line break of its own

    def leaks_into(self, text: str) -> bool:
        """Whether `text` holds an input, or is (part of) one. A short input only counts as the text or a line of it."""
        whole = normalised(text)
        lines = {whole, *(normalised(line.lstrip(" \t-*>").strip("\"'` \t")) for line in text.splitlines())}
        if self._short & lines:
            return True
        if len(whole) >= SHORT_CHARS and whole in self._all_long:
            return True
        return any(known in whole for known in self._long)


# --- runs -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it was asked for, with all that makes it the same when it is done again."""

    run_id: UUID
    kind: Literal["ab", "eval"]
    touchpoint_id: str
    workspace_id: UUID | None
    variant_a: Variant
    variant_b: Variant
    split: Split
    requested_by: str
    requested_at: datetime
    baseline_id: UUID | None = None
    suite: SuiteSettings = field(default_factory=SuiteSettings)
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    suite_sha256: str | None = None
    cases: int = 0
    model: str = ""
    params_sha256: str = ""


@dataclass(frozen=True, slots=True)
class Shard:
    """One variant with some of the cases of a run."""

    shard: int
    variant: Arm
    case_ids: tuple[str, ...]


def deal(case_ids: Sequence[str], shard_cases: int) -> list[Shard]:
    """Shards of at most `shard_cases` cases, the variants taking turns, so that both are half done half-way.

    The same cases in the same order give the same shards: two runs that share a variant meet in its shards.
    """
    hands = [tuple(case_ids[at : at + shard_cases]) for at in range(0, len(case_ids), shard_cases)]
    return [
        Shard(2 * number + turn, variant, hand)
        for number, hand in enumerate(hands)
        for turn, variant in enumerate(ARMS)
    ]


def choose(dealt: Sequence[str], wanted: Sequence[str], split: str) -> list[str]:
    """The wanted case ids in the order dealt, or all when none is named. Raises CannotRun, naming unknown ids."""
    if not dealt:
        raise CannotRun(f"the suite has no {split} cases: import some with split={split!r}")
    if not wanted:
        return list(dealt)
    chosen = set(wanted)
    if unknown := sorted(chosen.difference(dealt)):
        raise CannotRun(f"the {split} split of the current suite has no case {_listed(unknown)}")
    return [case_id for case_id in dealt if case_id in chosen]


def check_variant(name: str, variant: Variant) -> None:
    """Raises CannotRun when a variant's text is not what its hash says."""
    try:
        found = content_sha256(variant.parts)
    except ValueError as error:
        raise CannotRun(f"variant {name}: {error}") from None
    if found != variant.content_sha256:
        raise CannotRun(f"variant {name}: its text has the hash {found}, not {variant.content_sha256}")


def check_metrics(suite: SuiteSettings) -> None:
    """Raises CannotRun, naming a metric that is none."""
    if unknown := sorted({suite.primary_metric, *suite.metrics}.difference(CLASSIFICATION)):
        raise CannotRun(f"suite metric {_listed(unknown)} is unknown: there are {', '.join(CLASSIFICATION)}")


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED_AT_MOST])
    return shown if len(names) <= _NAMED_AT_MOST else f"{shown} and {len(names) - _NAMED_AT_MOST} more"
