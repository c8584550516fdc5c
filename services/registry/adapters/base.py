"""What every prompt storage adapter offers, the values it speaks in, and the errors it answers with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from libs.contracts.prompts import PromptPart as PromptPart
from libs.contracts.prompts import content_sha256 as content_sha256

MAX_TEXT_BYTES = 1024 * 1024
MAX_PART_CHARACTERS = 262_144
MAX_PATH_CHARACTERS = 200
"""Largest prompt, all parts together, in UTF-8 bytes: what a proposal event on the bus can carry."""

DRIFT_WARNING = (
    "On-disk state has drifted since activation. The proposed rollback diff may not restore "
    "the originally-active prompt. Manual review required."
)

Tier = Literal[1, 2]
"""1: activation takes effect at once. 2: it is an intent that a person carries out in git."""

StorageErrorCode = Literal[
    "bad_branch_name",
    "bad_path",
    "branch_missing",
    "conflict",
    "git_failed",
    "git_missing",
    "git_timeout",
    "not_a_repository",
    "not_utf8",
    "nothing_to_change",
    "path_missing",
    "path_outside_repository",
    "repository_damaged",
    "repository_missing",
    "repository_not_allowed",
    "symbolic_link",
    "text_too_large",
    "uncommitted_edits",
    "unknown_path",
    "unknown_version",
]


class StorageError(Exception):
    """A prompt store refused: `message` says what is wrong and where, `hint` what would be right.

    Neither ever holds prompt text, so both may reach a log line or an HTTP body.
    """

    def __init__(self, code: StorageErrorCode, message: str, hint: str = "") -> None:
        super().__init__(f"{message} {hint}".rstrip())
        self.code: StorageErrorCode = code
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class CurrentPrompt:
    """The text a store holds now.

    `version_ref` names the change that last touched the text; `tip` is the commit it was read at
    (None for stores without commits), which moves whenever anything in the repository does.
    """

    parts: tuple[PromptPart, ...]
    content_sha256: str
    version_ref: str
    tip: str | None = None


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """One text that a store held at some time; `created_at` is aware, in UTC."""

    version_ref: str
    content_sha256: str
    created_at: datetime
    author: str
    summary: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A text that is ready to be activated. `parts` is the whole prompt, not only what changes."""

    parts: tuple[PromptPart, ...]
    content_sha256: str


@dataclass(frozen=True, slots=True)
class Intent(Draft):
    """A tier-2 draft: a change that a person still has to merge.

    `branch` and `commit` are None when only a patch was asked for. `diff` applies to the tracked
    branch with `git apply`; `paths` are the files it changes; `post_apply` what to run afterwards.
    """

    branch: str | None
    commit: str | None
    base_commit: str
    paths: tuple[str, ...]
    diff: str
    redeploy_required: bool
    post_apply: list[str]


@dataclass(frozen=True, slots=True)
class Activation:
    """Whether a draft is what the store serves. `version_ref` is None until `effective`."""

    effective: bool
    content_sha256: str
    version_ref: str | None


@dataclass(frozen=True, slots=True)
class Drift:
    """The text's SHA-256 when it was activated against now; `warning` is None when they agree."""

    expected_sha256: str
    found_sha256: str
    drifted: bool
    warning: str | None


@dataclass(frozen=True, slots=True)
class RollbackProposal:
    """How a person restores an earlier text; making one changes nothing in the repository.

    `diff` is the authority: it leads from what the tracked branch holds now to the target text.
    `revert_commit` is the commit that last changed the text; reverting it gives the same result
    only when `revert_restores`. `warnings` holds the drift warning and whatever stands in the way.
    """

    target_version_ref: str
    content_sha256: str
    base_commit: str
    diff: str
    revert_commit: str
    revert_restores: bool
    files: tuple[str, ...]
    redeploy_required: bool
    post_apply: list[str]
    explanation: str
    drift: Drift
    warnings: tuple[str, ...]


class PromptStorageAdapter(Protocol):
    """One touchpoint's prompt, wherever it lives. Every method raises `StorageError`."""

    @property
    def tier(self) -> Tier:
        """Whether activation takes effect at once (1) or by a person's hand (2)."""
        ...

    async def current_version(self) -> CurrentPrompt:
        """The text the store holds now."""
        ...

    async def list_versions(self, limit: int = 20) -> list[StoredVersion]:
        """Earlier texts, newest first, at most `limit`."""
        ...

    async def propose_change(
        self, parts: Sequence[PromptPart], *, message: str, name: str, expected_current_sha256: str
    ) -> Draft:
        """Prepare `parts` for activation; `conflict` when the store no longer holds the expected text."""
        ...

    async def activate(self, draft: Draft) -> Activation:
        """Make the draft the current text (tier 1), or say whether a person has done so (tier 2)."""
        ...

    async def rollback_to(
        self, version_ref: str, *, activated_sha256: str, parts: Sequence[PromptPart] | None = None
    ) -> Activation | RollbackProposal:
        """Restore an earlier text (tier 1), or say how a person does (tier 2).

        `activated_sha256` is the hash the ledger recorded for what is live now. `parts` is the text
        of `version_ref` as the ledger keeps it, for stores that can no longer look it up.
        """
        ...


def measure_drift(expected_sha256: str, found_sha256: str) -> Drift:
    """Compare the hash at activation with the hash now."""
    drifted = expected_sha256 != found_sha256
    return Drift(expected_sha256, found_sha256, drifted, DRIFT_WARNING if drifted else None)


def text_bytes(parts: Iterable[PromptPart]) -> dict[str, bytes]:
    """Each part's exact bytes by path; raises `text_too_large`."""
    encoded = {part.path: part.text.encode() for part in parts}
    refuse_too_large(sum(map(len, encoded.values())), ", ".join(encoded))
    return encoded


def decode_text(path: str, raw: bytes) -> PromptPart:
    """A part from a file's exact bytes: line endings and a byte order mark are kept as they are."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise StorageError(
            "not_utf8", f"{path} is not UTF-8 text (byte {error.start}).", "Save the file as UTF-8."
        ) from None
    if "\0" in text:  # valid UTF-8, but git takes such a file for binary
        raise StorageError("not_utf8", f"{path} holds a NUL byte, so it is not text.")
    return prompt_part(path, text)


def prompt_part(path: str, text: str) -> PromptPart:
    """A part as events carry it; raises `text_too_large` and `bad_path` beyond what an event may hold."""
    if len(text) > MAX_PART_CHARACTERS:
        raise StorageError(
            "text_too_large",
            f"{path}: {len(text):,} characters, more than the {MAX_PART_CHARACTERS:,} of one part.",
            "Move reference data out of the prompt, or split it into parts.",
        )
    if len(path) > MAX_PATH_CHARACTERS:
        raise StorageError("bad_path", f"{path[:60]}… is longer than {MAX_PATH_CHARACTERS} characters.")
    return PromptPart(path=path, text=text)


def refuse_too_large(size: int, where: str) -> None:
    """Raise `text_too_large` when `size` bytes exceed what a prompt may have."""
    if size > MAX_TEXT_BYTES:
        raise StorageError(
            "text_too_large",
            f"{where}: {size:,} bytes of prompt text, more than the {MAX_TEXT_BYTES:,} allowed.",
            "Move reference data out of the prompt.",
        )
