"""What an adapter is: a store that changes at once, or one that a person merges into. The values and errors of both."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self
from uuid import UUID

from libs.contracts.prompts import PromptPart as PromptPart
from libs.contracts.prompts import content_sha256 as content_sha256
from libs.contracts.touchpoints import Storage, Touchpoint
from libs.service_kit.db import Connection
from services.registry.domain import Target
from services.registry.store.versions import Origin, Text

MAX_TEXT_BYTES = 1024 * 1024
"""Largest prompt, all parts together, in UTF-8 bytes: what a proposal event on the bus can carry."""
MAX_PART_CHARACTERS = 262_144
MAX_PATH_CHARACTERS = 200

DRIFT_WARNING = (
    "On-disk state has drifted since activation. The proposed rollback diff may not restore "
    "the originally-active prompt. Manual review required."
)

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
    "nothing_to_merge",
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

    `version_ref` names the change that last touched the text.
    """

    parts: tuple[PromptPart, ...]
    content_sha256: str
    version_ref: str


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change that stands ready for a person to merge.

    `parts` is the whole prompt, not only what changes. `diff` applies to the tracked branch with `git apply`; `paths`
    are the files it changes; `post_apply` what to run afterwards.
    """

    parts: tuple[PromptPart, ...]
    content_sha256: str
    branch: str
    commit: str
    base_commit: str
    paths: tuple[str, ...]
    diff: str
    redeploy_required: bool
    post_apply: list[str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A text was seen in its store: the version it is there, and where that is, for the ledger."""

    version_ref: str
    where: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """One field of a touchpoint that an adapter cannot use, and what would be right."""

    field: str
    message: str
    hint: str


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


class Store(ABC):
    """Where one touchpoint's prompt lives. Registered by its name in `pyproject.toml`, `burnish.adapters`.

    It is an `ImmediateStore` or a `MergedStore`; nothing else in the registry asks which adapter it is. What it refuses
    is a `StorageError`.
    """

    @classmethod
    @abstractmethod
    def of(cls, storage: Storage, roots: Sequence[Path]) -> Self:
        """The store that a touchpoint's configuration names. `roots`: the folders in which repositories may lie."""

    @classmethod
    @abstractmethod
    def misfits(cls, touchpoint: Touchpoint) -> Iterator[Misfit]:
        """What of the configuration it cannot use, with the field; nothing is opened."""

    @classmethod
    @abstractmethod
    def location(cls, storage: Storage) -> tuple[object, ...]:
        """What names the place: where two configurations differ in it, the prompt was moved."""


class ImmediateStore(Store):
    """Changes at once: what it writes stands or falls with the ledger's transaction, whose connection it is given."""

    @abstractmethod
    def initial(self) -> tuple[PromptPart, ...]:
        """The text to begin with, as the configuration gives it."""

    @abstractmethod
    async def current(self, conn: Connection, target: Target) -> CurrentPrompt:
        """The live text, its hash taken anew from what is stored. Raises `unknown_version` where none is live."""

    @abstractmethod
    async def record(
        self,
        conn: Connection,
        target: Target,
        parts: Sequence[PromptPart],
        *,
        by: str,
        origin: Origin,
        proposal_id: UUID | None = None,
        note: str = "",
    ) -> Text:
        """Keep a text as a version of its own, not live yet: being live is a row of the ledger's."""


class MergedStore(Store):
    """Proposes a change that a person merges, and is confirmed later by the hash of what it holds."""

    @abstractmethod
    async def current(self) -> CurrentPrompt:
        """The text it holds now."""

    @abstractmethod
    async def propose(
        self, parts: Sequence[PromptPart], *, message: str, name: str, expected_sha256: str
    ) -> ProposedChange:
        """Make `parts` ready for a person; `conflict` when the store no longer holds the expected text.

        Asked again with the same text under the same name, it finds what it made.
        """

    @abstractmethod
    async def merged(self, content_sha256: str) -> Seen | None:
        """Where it holds exactly this text now; None when it does not."""

    @abstractmethod
    async def way_back(self, parts: Sequence[PromptPart], *, to_ref: str, activated_sha256: str) -> RollbackProposal:
        """How a person gets back to `parts`, the text of version `to_ref`. Changes nothing.

        `activated_sha256` is the hash that the ledger recorded for what is live now.
        """


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
