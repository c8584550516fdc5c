"""What the tools take. An argument that a tool does not have is an error that names it; none is left out silently."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from libs.contracts import printable

MOST_ERRORS = 10
LONGEST_NAME = 60

Question = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
Tag = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Tags = Annotated[tuple[Tag, ...], Field(max_length=50)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Workspace = Annotated[
    UUID | None, Field(description="only this workspace's library; it can only narrow what the token allows")
]


class BadArguments(ValueError):
    """The arguments are not those of the tool. The message names each, and quotes no value."""


class Arguments(BaseModel):
    """The arguments of a tool: each has its type, nothing is converted, and there are no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class ScopeFilter(Arguments):
    """Which tags a row must have and must not have."""

    include: Tags = Field(default=(), description="only rows with one of these scope tags")
    exclude: Tags = Field(default=(), description="no row with one of these, among its tags or its anti-scope tags")
    expression: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] | None = Field(
        default=None, description="scope tags joined with AND, OR, NOT and parentheses"
    )


class DomainFilter(Arguments):
    """The domain that a row must have."""

    primary_domain: Label | None = None
    primary_subtopic: Label | None = None


class Search(Arguments):
    """`q_a_search`."""

    query: Question = Field(description="the question, or the topic")
    workspace_id: Workspace = None
    scope_filter: ScopeFilter | None = None
    domain_filter: DomainFilter | None = None
    provenance_filter: Annotated[tuple[Literal["EXTRACTED", "INFERRED", "AMBIGUOUS"], ...], Field(max_length=3)] = ()
    publication_status_filter: Annotated[
        tuple[Literal["draft", "in_review", "published", "archived"], ...], Field(min_length=1, max_length=4)
    ] = ("published",)
    include_extractions: bool = Field(
        default=False, description="also what was found in documents and nobody has vouched for yet"
    )
    as_of: AwareDatetime | None = Field(default=None, description="what held then, in the words of then")
    limit: Annotated[int, Field(ge=1, le=50)] = 10
    offset: Annotated[int, Field(ge=0, le=1_000)] = 0


class Get(Arguments):
    """`q_a_get`."""

    q_a_pair_id: UUID | None = Field(default=None, description="of a pair; this or `q_a_extraction_id`")
    q_a_extraction_id: UUID | None = Field(default=None, description="of an extraction; this or `q_a_pair_id`")
    workspace_id: Workspace = None
    include_citations: bool = True
    include_history: bool = Field(default=False, description="also who changed it, when and why")

    @model_validator(mode="after")
    def _names_one(self) -> Get:
        if (self.q_a_pair_id is None) == (self.q_a_extraction_id is None):
            raise ValueError("give either `q_a_pair_id` or `q_a_extraction_id`")
        return self


Answer = Annotated[str, StringConstraints(min_length=1, max_length=50_000)]
Phrasings = Annotated[tuple[Question, ...], Field(max_length=200)]
Reason = Annotated[str, StringConstraints(max_length=2_000)]


class Create(Arguments):
    """`q_a_create`."""

    question_text: Question | None = None
    answer_standard: Answer | None = None
    answer_advanced: Answer | None = None
    alternate_question_phrasings: Phrasings | None = None
    scope_tag: Tags | None = None
    anti_scope_tag: Tags | None = None
    primary_domain: Label | None = None
    primary_subtopic: Label | None = None
    secondary_domain: Label | None = None
    secondary_subtopic: Label | None = None
    promote_from_extraction_id: UUID | None = Field(
        default=None, description="make the pair of this extraction, with all it holds, and give nothing else"
    )
    publication_status: Literal["draft"] = Field(default="draft", description="a person publishes")
    reason: Reason = ""
    workspace_id: Annotated[
        UUID | None, Field(description="whose library; needed where the token is for several workspaces")
    ] = None

    @model_validator(mode="after")
    def _says_what(self) -> Create:
        if self.promote_from_extraction_id is not None:
            if self.model_fields_set - {"promote_from_extraction_id", "publication_status", "reason"}:
                raise ValueError("with `promote_from_extraction_id` the pair is what was extracted: give nothing else")
        elif self.question_text is None or self.answer_standard is None:
            raise ValueError("give `question_text` and `answer_standard`, or `promote_from_extraction_id`")
        return self


class ProposeEdit(Arguments):
    """`q_a_propose_edit`."""

    q_a_pair_id: UUID
    version_number: Annotated[int, Field(ge=1, le=2_147_483_647)] = Field(
        description="of the pair as you read it with q_a_get"
    )
    reason: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] = Field(
        description="for the person who decides"
    )
    question_text: Question | None = None
    answer_standard: Answer | None = None
    answer_advanced: Answer | None = None
    alternate_question_phrasings: Phrasings | None = None
    scope_tag: Tags | None = None
    anti_scope_tag: Tags | None = None
    primary_domain: Label | None = None
    primary_subtopic: Label | None = None
    secondary_domain: Label | None = None
    secondary_subtopic: Label | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> ProposeEdit:
        if not any(getattr(self, name) is not None for name in CHANGEABLE):
            raise ValueError(f"name at least one of {', '.join(CHANGEABLE)}")
        return self


CHANGEABLE = tuple(name for name in ProposeEdit.model_fields if name not in ("q_a_pair_id", "version_number", "reason"))

ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)


def read(model: type[ArgumentsT], given: Mapping[str, Any]) -> ArgumentsT:
    """The arguments as the tool takes them. Raises `BadArguments`."""
    try:
        # As JSON, which it was: only so a text is read as an id or an instant, and "1" not as a number.
        written = json.dumps(given, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        raise BadArguments(
            "the arguments hold something that JSON does not: NaN, Infinity or half a character"
        ) from None
    try:
        return model.model_validate_json(written)
    except ValidationError as error:
        raise BadArguments(_told(model, error)) from None


def _told(model: type[Arguments], error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False, include_context=False)
    lines = [_line(model, one["loc"], one["type"], one["msg"]) for one in found[:MOST_ERRORS]]
    if len(found) > MOST_ERRORS:
        lines.append(f"and {len(found) - MOST_ERRORS} more")
    return "\n".join(lines)


def _line(model: type[Arguments], loc: tuple[int | str, ...], kind: str, message: str) -> str:
    place = printable.one_line(".".join(str(step)[:LONGEST_NAME] for step in loc))
    if kind == "extra_forbidden":
        return f"{place}: there is no such argument; {_instead(model, loc)}"
    if kind == "missing":
        return f"{place}: it is required"
    told = printable.one_line(message.removeprefix("Value error, "))[:300]
    return f"{place}: {told}" if place else told


def _instead(model: type[Arguments], loc: tuple[int | str, ...]) -> str:
    known = sorted(_fields(model, loc[:-1]))
    near = difflib.get_close_matches(str(loc[-1])[:LONGEST_NAME], known, n=1)
    return f"`{near[0]}` is meant?" if near else f"there are {', '.join(known)}"


def _fields(model: type[BaseModel], path: tuple[int | str, ...]) -> set[str]:
    """The names that stand at a place of the arguments."""
    found = model
    for step in path:
        field = found.model_fields.get(str(step))
        inner = _model_in(field.annotation) if field else None
        if inner is None:
            return set(found.model_fields)
        found = inner
    return set(found.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    for one in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(one, type) and issubclass(one, BaseModel):
            return one
    return None
