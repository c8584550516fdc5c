"""What every scanner is: options that are checked, one page of finds, and whether evidence still exists."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar
from uuid import UUID

import asyncpg
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from libs.contracts.vocabulary import Scope, SignalType
from libs.service_kit.db import Connection
from services.scanner.domain import PLATFORM_DSN, Finding, Watermark

Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$")]
DsnVariable = Annotated[str, StringConstraints(pattern=r"^BURNISH_PLATFORM_[A-Z0-9_]{1,60}$")]
NO_ROW = UUID(int=0)
_EXISTING = "SELECT id FROM {table} WHERE id = ANY ($1::uuid[])"


class BadOptions(Exception):
    """A source's options cannot be used; the message names the option and what would be right, never a value."""


class SourceOptions(BaseModel):
    """The options that every scanner of the platform's tables has. An unknown one is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    dsn_env: DsnVariable = Field(
        default=PLATFORM_DSN, description="environment variable with the DSN; begins with BURNISH_PLATFORM_"
    )
    schema_name: Identifier = Field(default="platform", alias="schema", description="schema of the platform's tables")
    ignore_workspace: bool = Field(
        default=False,
        description="for a global touchpoint: read rows of workspaces too, and leave the workspace out",
    )


OptionsT = TypeVar("OptionsT", bound=SourceOptions)


class Scanner(ABC):  # what every scanner is, whether it reads or hears
    """What a touchpoint may name under `signals`. `name` is the one under which it is registered."""

    name: ClassVar[str]


class SignalSource(Scanner, Generic[OptionsT]):
    """A scanner that reads a table on a schedule, configured. Only through the connection it is given."""

    signal_type: ClassVar[SignalType]
    table: ClassVar[str]
    """The table whose rows are the evidence: `evidence_ref.source`, and the head of every source key."""
    options_model: ClassVar[type[SourceOptions]]

    def __init__(self, options: OptionsT) -> None:
        self.options = options

    @classmethod
    def configured(cls, options: Mapping[str, Any]) -> Self:
        """With these options. Raises BadOptions."""
        try:
            return cls(cls.options_model.model_validate(dict(options)))  # type: ignore[arg-type]
        except ValidationError as error:
            raise BadOptions(_explained(cls.name, cls.options_model, error)) from error

    @abstractmethod
    async def scan(self, conn: Connection, scope: Scope, since: Watermark, limit: int) -> list[Finding]:
        """The next finds after `since` in the order (time of change, id), at most `limit` of them.

        Fewer than `limit` means that there are no more now. Rows that do not fit the touchpoint's scope are no finds.
        """

    async def existing(self, conn: Connection, row_ids: Sequence[UUID]) -> set[UUID]:
        """Those of these rows that are still there, whatever their state."""
        rows = await conn.fetch(_EXISTING.format(table=self.relation(self.table)), row_ids)
        return {row["id"] for row in rows}

    def relation(self, table: str) -> str:
        """A table of the platform as it stands in SQL: both parts are identifiers that were checked, and quoted."""
        return f'"{self.options.schema_name}"."{table}"'

    def fits(self, column: str, scope: Scope) -> str:
        """The SQL condition that a row's workspace fits the touchpoint's scope."""
        if scope == "workspace":
            return f"{column} IS NOT NULL"
        return "true" if self.options.ignore_workspace else f"{column} IS NULL"

    @staticmethod
    def workspace(row: asyncpg.Record, scope: Scope) -> UUID | None:
        """The workspace of a row's signal: none for a global touchpoint."""
        return row["workspace_id"] if scope == "workspace" else None


def after(since: Watermark) -> tuple[object, UUID]:
    """The watermark as the two parameters of a keyset condition over `uuid` ids."""
    return since.at, UUID(since.row_id) if since.row_id else NO_ROW


def _explained(scanner: str, model: type[SourceOptions], error: ValidationError) -> str:
    names = sorted(field.alias or name for name, field in model.model_fields.items())
    told = []
    for item in error.errors(include_input=False, include_url=False):
        option = ".".join(map(str, item["loc"]))
        what = "is not an option" if item["type"] == "extra_forbidden" else item["msg"]
        told.append(f"{option}: {what}")
    return f"options of {scanner}: {'; '.join(told)}; its options are {', '.join(names)}"
