"""What the chain implies about the tables. Pure: a line or a row as it was read, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from libs.contracts.prompts import PromptPart, content_sha256
from services.registry.domain import CERTIFIED, Target, canonical_sha256, text_id

ACTIVATIONS = ("registered", "activated", "rolled_back")
AT_WORK = ("recorded", "open", "failed")
SHOWN_CHARACTERS = 100
TABLE_REF = "feed_prompts:"
"""How a reference begins that ends in the id of its text."""

NOT_COVERED = {
    "prompt_version_registry": {},
    "prompt_versions": {},
    "ledger_entries": {},
    "ledger_head": {},
    "drift_findings": {},
    "intents": {
        "branch": "where the work on the change is; what is merged is compared by its hash",
        "commit_id": "as `branch`",
        "diff": "shown to people; that of a rollback is covered, that of a change is made anew from the repository",
        "error_code": "why work on the branch failed, which may be tried again; covered once the intent is closed",
        "error": "as `error_code`",
        "updated_at": "when the work on the branch came this far",
    },
}
"""Each covered table's columns that no line implies, and why."""


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: in which row of which table, in which columns, and which line says otherwise."""

    table: str
    row: str
    problem: str
    columns: tuple[str, ...] = ()
    line: int | None = None


Row = Mapping[str, Any]


def of_line(line: Row) -> Fault | None:
    """What a line implies that is not so. `line` has its fields, and under names with a dot what the tables hold."""
    return next(_of_line(line), None)


def _of_line(line: Row) -> Iterator[Fault]:
    if fault := _misplaced(line):
        yield fault
    match line["kind"]:
        case "registered" | "activated" | "rolled_back":
            yield from _activation(line)
        case "intent":
            yield from _intent(line)
        case "confirmed" | "intent_closed" if _detail(line, "intent_id") is not None:
            yield from _settled(line)
        case "drift":
            yield from _finding(line)


def _misplaced(line: Row) -> Fault | None:
    seq, scope = line["seq"], line["touchpoint.scope"]
    if scope is None:
        problem = f"entry {seq} is about a touchpoint that is not registered"
    elif (scope == "workspace") != (line["workspace_id"] is not None):
        problem = f"entry {seq} has a workspace that does not fit the touchpoint's scope"
    else:
        return None
    return Fault("touchpoints", _shown(line["touchpoint_id"]), problem, ("scope",), seq)


# --- activations ------------------------------------------------------------------------------------------


def _activation(line: Row) -> Iterator[Fault]:
    seq, row = line["seq"], _part(line, "activation")
    if line["previous_ref"] != line["before.version_ref"]:
        yield Fault(
            "ledger_entries", str(seq), f"entry {seq} replaces a version that was not live", ("previous_ref",), seq
        )
    if row["id"] is None:
        yield _gone("prompt_version_registry", _detail(line, "activation_id"), "row", line)
        return
    expected = {
        "touchpoint_id": line["touchpoint_id"],
        "workspace_id": line["workspace_id"],
        "version_ref": line["version_ref"],
        "storage_adapter": _detail(line, "adapter"),
        "activated_at": line["at"],
        "activated_by": line["by"],
        "rolled_back_from": line["before.id"] if line["kind"] == "rolled_back" else None,
        "rolled_back_at": line["after.at"],
        "file_sha256": _detail(line, "content_sha256"),
        "notes": line["reason"],
        "proposal_id": _part(line, "text")["proposal_id"],
    }
    if "text_id" in line["detail"]:
        expected["prompt_version_id"] = _detail(line, "text_id")
    yield from _differing("prompt_version_registry", row["id"], expected, row, seq)
    yield from _text_of(line, row)


def _text_of(line: Row, row: Row) -> Iterator[Fault]:
    text, seq = _part(line, "text"), line["seq"]
    if text["id"] is None:
        yield _gone("prompt_versions", row["prompt_version_id"], "text", line)
        return
    expected = {
        "touchpoint_id": line["touchpoint_id"],
        "workspace_id": line["workspace_id"],
        "version_ref": line["version_ref"],
        "content_sha256": _detail(line, "content_sha256"),
    }
    yield from _differing("prompt_versions", text["id"], expected, text, seq)


def of_unmade_activation(row: Row) -> Fault:
    """An activation that no line made, or more than one."""
    how = "no entry of the ledger" if row["lines"] == 0 else "more than one entry"
    return Fault("prompt_version_registry", row["row"], f"{how} made this activation", ("id",))


# --- intents ----------------------------------------------------------------------------------------------


def _intent(line: Row) -> Iterator[Fault]:
    seq, row = line["seq"], _part(line, "intent")
    if row["intent_id"] is None:
        yield _gone("intents", _detail(line, "intent_id"), "intent", line)
        return
    expected = {
        "kind": _detail(line, "kind"),
        "touchpoint_id": line["touchpoint_id"],
        "workspace_id": line["workspace_id"],
        "proposal_id": line["proposal_id"],
        "from_ref": line["previous_ref"],
        "from_sha256": line["before.content_sha256"],
        "to_ref": line["version_ref"],
        "content_sha256": _detail(line, "content_sha256"),
        "created_by": line["by"],
        "message": line["reason"],
    }
    if "created_at" in line["detail"]:
        expected["created_at"] = _detail(line, "created_at")
    if "diff_sha256" in line["detail"]:
        expected["diff_sha256"] = _detail(line, "diff_sha256")
    yield from _differing("intents", row["intent_id"], expected, row, seq)
    if row["state"] in AT_WORK and row["confirmed_at"] is not None:
        yield Fault("intents", row["intent_id"], "it waits, and yet says where it was seen", ("confirmed_at",), seq)


def _settled(line: Row) -> Iterator[Fault]:
    """An intent whose state is not the one that a line led to."""
    row, seq = _part(line, "intent"), line["seq"]
    if row["intent_id"] is None:
        yield _gone("intents", _detail(line, "intent_id"), "intent", line)
        return
    if line["kind"] == "confirmed":
        expected = {"state": "confirmed", "confirmed_at": line["reason"]}
    else:
        expected = {"state": "closed", "confirmed_at": None, "error_code": "superseded", "error": line["reason"]}
    yield from _differing("intents", row["intent_id"], expected, row, seq)


def of_intent_text(line: Row, parts: object) -> Fault | None:
    """Whether the text that an intent has is the one that the line recorded."""
    row, recorded = line["intent.intent_id"], _detail(line, "parts_sha256")
    if recorded is not None and _json_sha256(parts) != recorded:
        told = f"the text is not the one that entry {line['seq']} recorded"
        return Fault("intents", row, told, ("parts",), line["seq"])
    if _hash_of(parts) != _detail(line, "content_sha256"):
        return Fault("intents", row, "the text is not the one with this hash", ("parts",), line["seq"])
    return None


def of_unrecorded_intent(row: Row) -> Fault:
    """An intent that no line recorded."""
    return Fault("intents", row["row"], "no entry of the ledger recorded this intent", ("intent_id",))


def of_unsettled_intent(row: Row) -> Fault:
    """An intent that is over, which no line says."""
    told = f"the intent is {_shown(row['state'])}, which no entry of the ledger says"
    return Fault("intents", row["row"], told, ("state", "confirmed_at"))


# --- texts and findings -----------------------------------------------------------------------------------


def of_text_row(row: Row) -> Fault | None:
    """A text that is another than its hash, its id or its reference says."""
    if row["scope"] is None or (row["scope"] == "workspace") != (row["workspace_id"] is not None):
        told = "the text's touchpoint is not registered, or has another scope"
        return Fault("prompt_versions", row["row"], told, ("touchpoint_id", "workspace_id"))
    if _hash_of(row["parts"]) != row["content_sha256"]:
        told = "the text is not the one with this hash"
        return Fault("prompt_versions", row["row"], told, ("parts", "content_sha256"))
    own = str(row["version_ref"]) == f"{TABLE_REF}{row['row']}"
    if not own and str(row["version_ref"]).startswith(TABLE_REF):
        return Fault("prompt_versions", row["row"], "the reference names another text", ("id", "version_ref"))
    if UUID(row["row"]).version == CERTIFIED and str(_identity(row, own)) != row["row"]:
        told = "the text, or what is kept beside it, is not what its id was computed from"
        return Fault("prompt_versions", row["row"], told, ("id",))
    return None


def _identity(row: Row, own: bool) -> UUID:
    proposal_id, workspace_id = row["proposal_id"], row["workspace_id"]
    return text_id(
        Target(row["touchpoint_id"], None if workspace_id is None else UUID(workspace_id)),
        TABLE_REF if own else row["version_ref"],
        row["parts"],
        origin=row["origin"],
        proposal_id=None if proposal_id is None else UUID(proposal_id),
        note=row["note"],
        created_by=row["created_by"],
        created_at=row["created_at"],
    )


def _finding(line: Row) -> Iterator[Fault]:
    seq, row = line["seq"], _part(line, "finding")
    if row["activation_id"] is None:
        yield _gone("drift_findings", _detail(line, "activation_id"), "finding", line)
    elif "found_at" in line["detail"]:
        yield from _differing("drift_findings", row["activation_id"], {"found_at": _detail(line, "found_at")}, row, seq)


def of_unsaid_finding(row: Row) -> Fault:
    """A finding that no line says."""
    return Fault("drift_findings", row["row"], "no entry of the ledger says this finding", ("found_sha256",))


# --- the end ----------------------------------------------------------------------------------------------


def of_end(end: Row | None, seq: int, sha256: str) -> Fault | None:
    """Whether the chain ends where its recorded end is, after line `seq` with hash `sha256`."""
    if end is None:
        return Fault("ledger_head", "", "the recorded end of the chain is gone")
    if (end["seq"] or 0) > seq:
        return Fault("ledger_head", "", f"entries {seq + 1} to {end['seq']} are missing", ("seq",), seq + 1)
    if end["seq"] != seq:
        told = f"the recorded end is entry {end['seq']}, but there are entries up to {seq}"
        return Fault("ledger_head", "", told, ("seq",), max(end["seq"] or 0, 0) + 1)
    if end["entry_sha256"] != sha256:
        return Fault(
            "ledger_head", "", f"the recorded end has another hash than entry {seq}", ("entry_sha256",), seq or None
        )
    if end["lines"] != seq:
        return Fault("ledger_entries", "", f"there are {end['lines']} entries, but the last is number {seq}", ("seq",))
    if seq and end["at"] != end["last_at"]:
        return Fault("ledger_head", "", f"the recorded end has another time than entry {seq}", ("at",), seq)
    return None


# --- comparing --------------------------------------------------------------------------------------------


def _gone(table: str, row: object, what: str, line: Row) -> Fault:
    return Fault(table, _shown(row), f"the {what} that entry {line['seq']} speaks of is gone", (), line["seq"])


def _differing(table: str, row: str, expected: Row, found: Row, line: int) -> Iterator[Fault]:
    columns = tuple(name for name, value in expected.items() if found[name] != value)
    if not columns:
        return
    told = "; ".join(
        f"{name} is {_shown(found[name])}, not {_shown(expected[name])}" for name in columns if name in SAFE
    )
    others = [name for name in columns if name not in SAFE]
    if others:
        told = "; ".join(filter(None, (told, f"{', '.join(others)} {'is' if len(others) == 1 else 'are'} another")))
    real = tuple("diff" if name == "diff_sha256" else name for name in columns)
    yield Fault(table, row, f"not as entry {line} says: {told}", real, line)


SAFE = frozenset(
    {
        "touchpoint_id",
        "workspace_id",
        "version_ref",
        "storage_adapter",
        "activated_at",
        "rolled_back_at",
        "rolled_back_from",
        "file_sha256",
        "content_sha256",
        "prompt_version_id",
        "proposal_id",
        "kind",
        "state",
        "from_ref",
        "from_sha256",
        "to_ref",
        "created_at",
        "found_at",
    }
)
"""Columns whose values may stand in an error: names, times and hashes; not what people wrote, nor who they are."""


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


def _part(line: Row, name: str) -> dict[str, Any]:
    start = f"{name}."
    return {key[len(start) :]: value for key, value in line.items() if key.startswith(start)}


def _detail(line: Row, name: str) -> Any:
    detail = line["detail"]
    return detail.get(name) if isinstance(detail, dict) else None


def _hash_of(parts: object) -> str | None:
    """The content hash of parts as the table holds them; None when they are no parts at all."""
    try:
        return content_sha256(
            PromptPart.model_construct(path=part["path"], text=part["text"])
            for part in parts  # type: ignore[attr-defined]
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return None


def _json_sha256(value: object) -> str | None:
    try:
        return canonical_sha256(value)
    except (ValueError, TypeError, RecursionError):
        return None
