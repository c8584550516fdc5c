"""What every extractor is: bytes of one file in, everything they came to out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import Extracted


@dataclass(frozen=True, slots=True)
class File:
    """A file as it came: its name without folders, its bytes, and the workspace that its bucket is bound to."""

    name: str
    content: bytes
    workspace_id: UUID | None = None


class FileRejected(ValueError):
    """A file that gives nothing: a code, and every problem found. What it gave before stays live, marked stale."""

    def __init__(self, code: str, problems: Sequence[Problem]) -> None:
        super().__init__(f"{code}: " + "; ".join(map(str, problems)))
        self.code = code
        self.problems = tuple(problems)


class Extractor(ABC):
    """One way to find questions and answers in a file. `kind` and `version` are written beside all that it finds."""

    kind: str
    version: str
    suffixes: Sequence[str]
    on_request: bool = False
    """It runs only for a file that somebody names, never for what a bucket holds."""

    @abstractmethod
    def extract(self, file: File) -> Extracted:
        """Everything in the file. Raises `FileRejected`. Pure but for time: the same bytes give the same answer."""
