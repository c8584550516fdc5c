"""What may be done with pairs, and what it comes to. Pure: rows in, changes out; time is an argument.

A row is a pair as it stands in its table, by column. A change says the new values of columns and what it is called in
the history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from libs.contracts.queries.qa_curation import (
    Clearable,
    NewPair,
    Outcome,
    PairChanges,
    Part,
    Resolution,
    SuggestionView,
)
from libs.contracts.vocabulary import ActorKind
from services.qa_ingest.domain.envelope import MAX_ITEMS, Envelope

Row = Mapping[str, Any]
ChangeType = Literal[
    "initial_ingest", "edit", "promote_from_extraction", "promote_from_bid", "merge", "split", "supersede", "archive",
    "reclassify", "governance_review_action", "restore", "verify", "source_changed",
]  # fmt: skip

COLUMN = {
    "question": "question_text",
    "alternate_phrasings": "alternate_question_phrasings",
    "id_token": "source_id_token",
    "scope_tags": "scope_tag",
    "anti_scope_tags": "anti_scope_tag",
}
"""Where a column is called otherwise than its field."""
WORDS = ("question_text", "answer_standard", "answer_advanced")
"""What people read of a pair."""
CLASSES = frozenset((
    *("primary_domain", "primary_subtopic", "secondary_domain", "secondary_subtopic", "scope_tag", "anti_scope_tag"),
    "layer",
))  # fmt: skip
INHERITED = (
    *("sources", "primary_domain", "primary_subtopic", "secondary_domain", "secondary_subtopic", "scope_tag"),
    *("anti_scope_tag", "provenance", "confidence", "valid_from", "valid_to", "publication_status", "sensitive"),
    *("layer", "next_review_date", "review_cadence_days", "source_document_id", "promoted_from_extraction_id"),
    *("promoted_from_answer", "origin_kind", "ingest_source", "metadata"),
)
"""What a part has of the whole that is split. Not its id token, and not that somebody verified it."""
REVERTED = (*WORDS, "alternate_question_phrasings", "variant_details")


class Unfit(Exception):
    """It is not done, and why: `code` a stable word, `status` one of HTTP, `extra` what else the asker should know."""

    def __init__(self, code: str, detail: str, status: int = 409, **extra: object) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.status = status
        self.extra = extra


@dataclass(frozen=True, slots=True)
class Change:
    """New values of a pair's columns."""

    columns: Mapping[str, Any]
    change_type: ChangeType


@dataclass(frozen=True, slots=True)
class Version:
    """One line of a pair's history: the row as it was from then on."""

    pair_id: UUID
    number: int
    change_type: str
    snapshot: Mapping[str, Any] = field(default_factory=dict)


# --- who, and what it was read as -------------------------------------------------------------------------------


def require_person(kind: ActorKind, what: str) -> None:
    """Raise unless a person asks: a machine makes drafts and proposes edits."""
    if kind != "human":
        raise Unfit("people_decide", f"an agent makes drafts and proposes edits; it does not {what}", 403)


def require_version(row: Row, version: int) -> None:
    """Raise when the pair is another by now than it was read as."""
    if row["version"] != version:
        raise Unfit(
            "stale_version",
            f"pair {row['id']} has version {row['version']} by now, not {version}: read it again",
            version=row["version"],
        )


def require_standing(row: Row, what: str) -> None:
    """Raise when the pair is archived, or another stands in for it."""
    if row["archived_at"] is not None:
        raise Unfit("archived", f"pair {row['id']} is archived: restore it before you {what} it")
    if row["superseded_by"] is not None:
        raise Unfit(
            "superseded",
            f"pair {row['id']} is superseded by {row['superseded_by']}: {what} that one, or restore this one first",
            superseded_by=str(row["superseded_by"]),
        )


# --- new pairs --------------------------------------------------------------------------------------------------


def new(pair: NewPair, at: datetime, status: str, answer: str | None) -> dict[str, Any]:
    """The columns of a pair that somebody makes; `answer` is the external one that it is made of."""
    said = _columns(pair)
    return {
        **said,
        "answer_advanced": said.get("answer_advanced"),
        "alternate_question_phrasings": _others(pair.question, pair.alternate_phrasings or ()),
        "variant_details": {},
        "scope_tag": said.get("scope_tag", []),
        "anti_scope_tag": said.get("anti_scope_tag", []),
        "sources": [],
        "provenance": pair.provenance or "EXTRACTED",
        "confidence": 1.0 if pair.confidence is None else pair.confidence,
        "valid_from": said.get("valid_from", at),
        "sensitive": bool(pair.sensitive),
        "metadata": pair.metadata or {},
        "publication_status": status,
        "next_review_date": said.get("next_review_date", next_review(pair.review_cadence_days, at.date())),
        "origin_kind": "curated_explicit" if answer is None else "derived_from_bid_response",
        "ingest_source": "qa_curate_manual" if answer is None else "qa_promote_from_bid",
        "promoted_from_answer": answer,
    }


def of_extraction(found: Row, at: datetime, status: str) -> dict[str, Any]:
    """The columns of a pair that an extraction becomes. Nothing typed is lost; what is only claimed is kept as such."""
    if found["invalidated_at"] is not None:
        raise Unfit(
            "invalidated",
            f"extraction {found['id']} is of an earlier version of its file ({found['invalidation_reason']}):"
            " promote the one that is served now",
        )
    if found["promoted_to_pair_id"] is not None:
        raise Unfit(
            "already_promoted",
            f"extraction {found['id']} is pair {found['promoted_to_pair_id']} already",
            pair_id=str(found["promoted_to_pair_id"]),
        )
    claims = {name: found[name] for name in ("publication_status", "verified_at", "verified_by")}
    claimed = {name: str(value) for name, value in claims.items() if value is not None and value != "draft"}
    place = {
        "file": found["source_file_basename"],
        "section_path": found["source_section_path"],
        "sheet": found["source_sheet"],
        "table_index": found["source_table_index"],
        "row_index": found["source_row_index"],
        "line": found["source_line"],
    }
    told = {
        "extractor": found["extractor_kind"],
        "place": {name: at for name, at in place.items() if at not in (None, [])},
    }
    marks = {name: True for name in ("revised", "fragment") if found[name]}
    return {
        **{name: found[name] for name in _OF_EXTRACTIONS},
        "answer_standard": found["answer_standard"] or found["answer_text"],
        "alternate_question_phrasings": _others(
            found["question_text"], [each["question"] for each in found["variants"]]
        ),
        "variant_details": {
            each["question"]: {"source": each.get("source"), "detail": each.get("detail")}
            for each in found["variants"]
            if each.get("source") or each.get("detail")
        },
        "source_document_id": found["document_id"],
        "promoted_from_extraction_id": found["id"],
        "valid_from": found["valid_from"] or at,
        "publication_status": status,
        "origin_kind": "extracted_from_corpus",
        "ingest_source": "qa_promote_from_extraction",
        "metadata": {
            **found["metadata"],
            **({"claimed": claimed} if claimed else {}),
            "found": {**told, **marks},
        },
    }


_OF_EXTRACTIONS = (
    *("question_text", "answer_advanced", "source_id_token", "sources", "primary_domain", "primary_subtopic"),
    *("secondary_domain", "secondary_subtopic", "scope_tag", "anti_scope_tag", "provenance", "confidence", "valid_to"),
    *("sensitive", "layer", "next_review_date", "review_cadence_days"),
)


# --- changes ----------------------------------------------------------------------------------------------------


def edited(row: Row, changes: PairChanges, clear: Collection[Clearable], at: datetime) -> Change:
    """Set and clear fields. A pair of which changes were requested waits for its review again."""
    require_standing(row, "edit")
    said = {**_columns(changes), **{COLUMN.get(name, name): None for name in clear}}
    both = sorted(name for name in clear if getattr(changes, name) is not None)
    if both:
        raise Unfit("set_and_cleared", f"{both[0]}: it is set and cleared at once", 422, field=both[0])
    question: str = said.get("question_text") or row["question_text"]
    phrasings: list[str] | None = said.get("alternate_question_phrasings")
    said["alternate_question_phrasings"] = _others(
        question, row["alternate_question_phrasings"] if phrasings is None else phrasings
    )
    different = {name: value for name, value in said.items() if not _same(value, row[name])}
    if not different:
        raise Unfit("nothing_to_change", f"pair {row['id']} says all of this already")
    _require_period(different.get("valid_from", row["valid_from"]), different.get("valid_to", row["valid_to"]))
    if different.keys() & set(WORDS) and row["governance_review_status"] == "changes_requested":
        different |= {"governance_review_status": "pending", "governance_review_due": at}
    return Change(different, "reclassify" if different.keys() <= CLASSES else "edit")


def edit_of_block(row: Row, block: Envelope) -> PairChanges:
    """What a changed block of a file proposes: its words; phrasings and tags join those that are there."""
    return PairChanges(
        question=block.question,
        answer_standard=block.answer_standard,
        answer_advanced=block.answer_advanced,
        alternate_phrasings=tuple(
            _united(row["alternate_question_phrasings"], [each.question for each in block.variants])[:MAX_ITEMS]
        ),
        scope_tags=tuple(_united(row["scope_tag"], block.scope_tags)[:MAX_ITEMS]),
        anti_scope_tags=tuple(_united(row["anti_scope_tag"], block.anti_scope_tags)[:MAX_ITEMS]),
    )


def proposal_key(row: Row, changes: PairChanges, clear: Collection[str]) -> str:
    """Equal for the same proposal about the same version of the pair."""
    said = json.dumps([changes.model_dump(mode="json", exclude_none=True), sorted(clear)], sort_keys=True)
    return f"{row['id']}|{row['version']}|{hashlib.sha256(said.encode()).hexdigest()}"


def merged(into: Row, absorbed: Sequence[Row]) -> Change:
    """What the pair that stays becomes: phrasings, tags and sources of all. It is sensitive when any of them is."""
    for row in (into, *absorbed):
        require_standing(row, "merge")
    asked = [into["question_text"], *into["alternate_question_phrasings"]]
    for row in absorbed:
        asked = _united(asked, [row["question_text"], *row["alternate_question_phrasings"]])
    details: dict[str, Any] = {}
    for row in reversed((into, *absorbed)):
        details |= row["variant_details"]
    columns: dict[str, Any] = {
        "alternate_question_phrasings": _others(into["question_text"], asked),
        "variant_details": details,
        "scope_tag": _all_of("scope_tag", into, absorbed),
        "anti_scope_tag": _all_of("anti_scope_tag", into, absorbed),
        "sources": _all_of("sources", into, absorbed),
        "sensitive": any(row["sensitive"] for row in (into, *absorbed)),
    }
    for name in ("alternate_question_phrasings", "scope_tag", "anti_scope_tag"):
        if len(columns[name]) > MAX_ITEMS:
            raise Unfit(
                "too_many", f"together they have {len(columns[name])} of {name}; at most {MAX_ITEMS} are kept", 422
            )
    return Change(columns, "merge")


def parts_of(row: Row, parts: Sequence[Part], at: datetime) -> list[dict[str, Any]]:
    """The columns of the pairs that a pair is split into."""
    require_standing(row, "split")
    return [
        {
            **{name: row[name] for name in INHERITED},
            "question_text": _text("question", part.question),
            "answer_standard": _text("answer_standard", part.answer_standard),
            "answer_advanced": part.answer_advanced,
            "alternate_question_phrasings": _others(part.question, part.alternate_phrasings),
            "variant_details": {},
            "scope_tag": list(row["scope_tag"] if part.scope_tags is None else part.scope_tags),
            "anti_scope_tag": list(row["anti_scope_tag"] if part.anti_scope_tags is None else part.anti_scope_tags),
            "source_id_token": None,
            "valid_from": row["valid_from"],
            "verified_at": None,
            "verified_by": None,
        }
        for part in parts
    ]


def superseded(row: Row, other: Row, change_type: ChangeType = "supersede") -> Change:
    """Another pair stands in for this one."""
    require_standing(row, "supersede")
    if other["id"] == row["id"]:
        raise Unfit("itself", "a pair does not supersede itself", 422)
    if other["workspace_id"] != row["workspace_id"]:
        raise Unfit("other_workspace", "both pairs must be of one workspace", 422)
    require_standing(other, "let others be superseded by")
    return Change({"superseded_by": other["id"]}, change_type)


def archived(row: Row, reason: str, change_type: ChangeType = "archive") -> Change:
    """Put away; it may be superseded."""
    if row["archived_at"] is not None:
        raise Unfit("archived", f"pair {row['id']} is archived already")
    return Change({"publication_status": "archived", "archive_reason": reason or None}, change_type)


def restored(row: Row) -> Change:
    """Back as a draft, or no longer superseded."""
    if row["archived_at"] is not None:
        return Change({"publication_status": "draft"}, "restore")
    if row["superseded_by"] is not None:
        return Change({"superseded_by": None}, "restore")
    raise Unfit("nothing_to_restore", f"pair {row['id']} is neither archived nor superseded")


def verified(row: Row, by: str, at: datetime) -> Change:
    """Found right by a person."""
    require_standing(row, "verify")
    return Change({"verified_at": at, "verified_by": by}, "verify")


def moved(row: Row, status: str) -> Change:
    """From one publication status to another."""
    require_standing(row, "publish")
    if row["publication_status"] == status:
        raise Unfit("nothing_to_change", f"pair {row['id']} is {status} already")
    return Change({"publication_status": status}, "edit")


# --- governance -------------------------------------------------------------------------------------------------


def reviewed(row: Row, outcome: Outcome, by: str, today: date, earlier: Version | None) -> Change:
    """The outcome of a review; after it the next is due when the cadence says. `earlier` is what to revert to."""
    require_standing(row, "review")
    columns: dict[str, Any] = {
        "governance_review_status": outcome,
        "governance_reviewer": by,
        "governance_review_due": None,
    }
    if outcome != "changes_requested":
        columns["next_review_date"] = next_review(row["review_cadence_days"], today)
    if outcome == "reverted":
        if earlier is None:
            raise Unfit("nothing_to_revert", f"pair {row['id']} never said anything else")
        columns |= {name: earlier.snapshot[name] for name in REVERTED if name in earlier.snapshot}
    return Change(columns, "governance_review_action")


def next_review(cadence_days: int | None, today: date) -> date | None:
    """When a pair is due again; None where it has no cadence."""
    return None if cadence_days is None else today + timedelta(days=cadence_days)


def before_the_last_words(row: Row, versions: Iterable[Version], number: int | None) -> Version | None:
    """The version of that number, else the newest that says something else than the pair now."""
    for version in sorted(versions, key=lambda each: -each.number):
        wanted = version.number == number if number is not None else _said(version.snapshot) != _said(row)
        if wanted:
            return version
    if number is not None:
        raise Unfit("no_such_version", f"to_version: pair {row['id']} has no version {number}", 422, field="to_version")
    return None


# --- undoing ----------------------------------------------------------------------------------------------------


def last_written(versions: Sequence[Version]) -> dict[UUID, int]:
    """The version in which an operation left each of its pairs."""
    written: dict[UUID, int] = {}
    for version in versions:
        written[version.pair_id] = max(version.number, written.get(version.pair_id, 0))
    return written


def undo(
    versions: Sequence[Version], now: Mapping[UUID, int], as_left: Collection[UUID]
) -> tuple[dict[UUID, int], list[UUID]]:
    """Which version each pair goes back to, and which pairs the operation made, which are archived.

    `versions` are those that the operation wrote, `now` the version of each pair. `as_left` are pairs that have later
    versions and say what the operation left: whatever came after it was undone.
    """
    written: dict[UUID, list[int]] = {}
    for version in versions:
        written.setdefault(version.pair_id, []).append(version.number)
    if not written:
        raise Unfit("nothing_to_undo", "the operation changed no pair that is still there")
    for pair_id, numbers in written.items():
        if now.get(pair_id) != max(numbers) and pair_id not in as_left:
            raise Unfit(
                "changed_since",
                f"pair {pair_id} was changed after this operation (version {now.get(pair_id)}, not {max(numbers)}):"
                " undo that first",
                pair_id=str(pair_id),
                version=now.get(pair_id),
            )
    back = {pair_id: min(numbers) - 1 for pair_id, numbers in written.items() if min(numbers) > 1}
    return back, [pair_id for pair_id in written if pair_id not in back]


# --- suggestions ------------------------------------------------------------------------------------------------

_USUAL: Mapping[str, Resolution] = {
    "proposed_edit": "edit",
    "near_duplicate": "merge",
    "same_question": "merge",
    "draft_final": "supersede",
    "source_changed": "note",
}


def resolution(found: SuggestionView, wanted: Resolution | None) -> Resolution:
    """What accepting it means: what is wanted, where that is possible, else what is usual for its kind."""
    usual = _USUAL[found.kind]
    two = found.pair_id is not None and found.other_pair_id is not None
    possible: set[Resolution] = {"note"}
    if found.kind == "proposed_edit" and found.pair_id is not None:
        possible.add("edit")
    if two and found.kind in ("near_duplicate", "same_question", "draft_final"):
        possible |= {"merge", "supersede"}
    chosen = wanted or usual
    if chosen not in possible:
        raise Unfit(
            "not_possible",
            f"resolution: a suggestion {found.kind} of {'two pairs' if two else 'one pair'} is resolved by"
            f" {', '.join(sorted(possible))}; not by {chosen}",
            422,
            field="resolution",
        )
    return chosen


def stays(found: SuggestionView, rows: Sequence[Row], keep: UUID | None) -> UUID:
    """Which of two pairs stays: the one that is named; else the final of a draft, and of two alike the older."""
    ids = [row["id"] for row in rows]
    if keep is not None:
        if keep not in ids:
            raise Unfit("not_of_these", f"keep: pair {keep} is not one of the two", 422, field="keep")
        return keep
    if found.kind == "draft_final" and found.other_pair_id is not None:
        return found.other_pair_id
    oldest: UUID = min(rows, key=lambda row: (row["created_at"], str(row["id"])))["id"]
    return oldest


# --- small things -----------------------------------------------------------------------------------------------


def _columns(said: PairChanges) -> dict[str, Any]:
    """What is set, by column; lists as lists."""
    columns: dict[str, Any] = {}
    for name in type(said).model_fields:
        value = getattr(said, name)
        if value is None:
            continue
        if name in ("question", "answer_standard", "answer_advanced"):
            value = _text(name, value)
        columns[COLUMN.get(name, name)] = list(value) if isinstance(value, tuple) else value
    for name in ("scope_tag", "anti_scope_tag"):
        if name in columns:
            columns[name] = list(dict.fromkeys(columns[name]))
    if "valid_from" in columns and "valid_to" in columns:
        _require_period(columns["valid_from"], columns["valid_to"])
    return columns


def _same(value: Any, kept: Any) -> bool:
    """Equal, as far as the table keeps it: its numbers have seven digits."""
    if isinstance(value, float) and isinstance(kept, float):
        return abs(value - kept) < 1e-6
    return bool(value == kept)


def _text(name: str, value: str) -> str:
    stripped = value.strip() if name == "question" else value
    if not stripped.strip():
        raise Unfit("blank", f"{name}: it is blank", 422, field=name)
    return stripped


def _require_period(begins: datetime | None, ends: datetime | None) -> None:
    if begins is not None and ends is not None and ends <= begins:
        raise Unfit("ends_before_it_begins", "valid_to: it must be later than valid_from", 422, field="valid_to")


def folded(question: str) -> str:
    """Equal for questions that differ in case and white space only."""
    return " ".join(question.casefold().split())


def _united(these: Iterable[str], those: Iterable[str]) -> list[str]:
    """Both in order, each text once."""
    return list({folded(each): each for each in reversed([*these, *those])}.values())[::-1]


def _others(question: str, phrasings: Iterable[str]) -> list[str]:
    """The phrasings, each once, without the question itself and what is blank."""
    return [each for each in _united([], phrasings) if each.strip() and folded(each) != folded(question)]


def _all_of(column: str, into: Row, absorbed: Sequence[Row]) -> list[Any]:
    every = [value for row in (into, *absorbed) for value in row[column]]
    return [value for n, value in enumerate(every) if value not in every[:n]]


def _said(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in WORDS)
