"""Pairs of the library under people's hands: made, changed, joined and undone, and what waits for a decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from uuid import UUID

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.show import when
from burnish.commands.verbs import data_option, gateway, json_option, verb
from burnish.failure import GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import FILE, INTEGER, NAME, TEXT
from burnish.printer import answer, can_ask, confirmed, print_json, print_table, remark
from libs.contracts.queries.qa_curation import (
    Clearable,
    OpenStatus,
    Outcome,
    Resolution,
    SuggestionKind,
    SuggestionState,
)

if TYPE_CHECKING:
    from burnish.client import Gateway

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
MAX_ANSWER_BYTES = 200_000
MAX_PARTS_BYTES = 2_000_000
PAIR = click.argument("pair", type=click.UUID)
REASON = click.option("--reason", type=TEXT, default="", help="Why; it is kept in the history.")
VERSION = click.option(
    "--version", type=INTEGER, help="The version that you read; refused if it is another.  [default: the one of now]"
)


def add_to(qa: click.Group) -> None:
    """Register the verbs."""
    _add_making(qa)
    _add_changing(qa)
    _add_moving(qa)
    _add_joining(qa)
    _add_waiting(qa)
    _add_ending(qa)


# --- new pairs, and their words ---------------------------------------------------------------------------------


def _content(function: FunctionT) -> FunctionT:
    """The options that say what is in a pair."""
    options = (
        click.option("--answer", type=TEXT, help="The standard answer."),
        click.option("--answer-file", type=FILE, help="Read the standard answer from FILE."),
        click.option("--advanced", type=TEXT, help="The advanced answer."),
        click.option("--also", multiple=True, type=TEXT, metavar="QUESTION", help="Another way to ask."),
        click.option("--id", "id_token", type=NAME, help="What its author calls it."),
        click.option("--tag", multiple=True, type=NAME, help="A scope tag; all of them together."),
        click.option("--anti-tag", multiple=True, type=NAME, help="Whoever looks for this tag does not find it."),
        click.option("--domain", type=NAME, help="Its primary domain."),
        click.option("--subtopic", type=NAME, help="Its primary subtopic."),
        click.option("--cadence", type=click.IntRange(1, 1_095), help="It is reviewed every so many days."),
        click.option("--sensitive/--not-sensitive", default=None, help="Only for whoever may see such pairs."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _said(
    answer: str | None,
    answer_file: Path | None,
    advanced: str | None,
    also: Sequence[str],
    id_token: str | None,
    tag: Sequence[str],
    anti_tag: Sequence[str],
    domain: str | None,
    subtopic: str | None,
    cadence: int | None,
    sensitive: bool | None,
) -> dict[str, Any]:
    """What of it was given, under the names of the API."""
    if answer is not None and answer_file is not None:
        raise click.UsageError("give the answer, or a file that holds it")
    told = {
        "answer_standard": answer if answer_file is None else _text_of(answer_file, MAX_ANSWER_BYTES),
        "answer_advanced": advanced,
        "alternate_phrasings": list(also) or None,
        "id_token": id_token,
        "scope_tags": list(tag) or None,
        "anti_scope_tags": list(anti_tag) or None,
        "primary_domain": domain,
        "primary_subtopic": subtopic,
        "review_cadence_days": cadence,
        "sensitive": sensitive,
    }
    return {name: value for name, value in told.items() if value is not None}


def _text_of(path: Path, limit: int) -> str:
    from libs.files import UnreadableFile, read_text

    try:
        return read_text(path, limit).strip("\n")
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error


def _add_making(qa: click.Group) -> None:
    @verb(
        qa,
        "create",
        example='burnish qa create "How long are backups kept?" --answer "Thirty-five days." --tag cloud',
        exits=GATEWAY_EXITS,
    )
    @click.argument("question", type=TEXT)
    @_content
    @click.option("--status", type=click.Choice(get_args(OpenStatus)), default="draft", show_default=True)
    @click.option(
        "--from-answer", type=FILE, metavar="FILE", help="It is made of this answer, which was given elsewhere."
    )
    @click.option("--reference", type=TEXT, help="What that answer is called there, e.g. a bid's number.")
    @click.option("--workspace", type=click.UUID, help="Whose library; the token's own otherwise.")
    @REASON
    @data_option
    @json_option
    def create(
        question: str,
        status: str,
        from_answer: Path | None,
        reference: str | None,
        workspace: UUID | None,
        reason: str,
        data: Path,
        as_json: bool,
        **content: Any,
    ) -> None:
        """Make a pair."""
        body = {"question": question, **_said(**content), "publication_status": status, "reason": reason}
        if from_answer is not None:
            text = _text_of(from_answer, MAX_ANSWER_BYTES)
            body["from_answer"] = {"text": text, "reference": reference}
            body.setdefault("answer_standard", text)
        if "answer_standard" not in body:
            raise click.UsageError("a pair has an answer: give --answer, --answer-file or --from-answer")
        if workspace is not None:
            body["workspace_id"] = str(workspace)
        with gateway(data) as api:
            _tell_one(api.post("/api/qa/pairs", body), as_json)

    @verb(qa, "promote", example="burnish qa promote 0b6c5a1e-3f51-4a54-9c1c-2f6a7f9d2f10", exits=GATEWAY_EXITS)
    @click.argument("extraction", type=click.UUID)
    @click.option("--status", type=click.Choice(get_args(OpenStatus)), default="draft", show_default=True)
    @REASON
    @data_option
    @json_option
    def promote(extraction: UUID, status: str, reason: str, data: Path, as_json: bool) -> None:
        """Make a pair of what was found in a file (`qa search --extractions`), with everything found of it."""
        body = {"publication_status": status, "reason": reason}
        with gateway(data) as api:
            _tell_one(api.post(f"/api/qa/extractions/{extraction}/promote", body), as_json)


def _add_changing(qa: click.Group) -> None:
    @verb(
        qa,
        "edit",
        example='burnish qa edit 0b6c… --answer "Ninety days."\nburnish qa edit 0b6c… --clear layer --propose',
        exits=GATEWAY_EXITS,
    )
    @PAIR
    @click.option("--question", type=TEXT, help="What it asks.")
    @_content
    @click.option("--clear", multiple=True, type=click.Choice(get_args(Clearable)), help="Take this away.")
    @click.option("--propose", is_flag=True, help="Propose it, for somebody else to accept.")
    @VERSION
    @REASON
    @data_option
    @json_option
    def edit(
        pair: UUID,
        question: str | None,
        clear: tuple[str, ...],
        propose: bool,
        version: int | None,
        reason: str,
        data: Path,
        as_json: bool,
        **content: Any,
    ) -> None:
        """Change a pair, or propose a change. What is not named stays as it is."""
        said = {**({} if question is None else {"question": question}), **_said(**content)}
        if not said and not clear:
            raise click.UsageError("nothing to change was named")
        if both := sorted(set(clear) & said.keys()):
            raise click.UsageError(f"{both[0]} is set and cleared at once")
        body = {**said, **dict.fromkeys(clear), "reason": reason}
        with gateway(data) as api:
            body["version"] = version or _version(api, pair)
            if propose:
                _tell_suggestion(api.post(f"/api/qa/pairs/{pair}/edits", body), as_json)
            else:
                _tell_one(api.patch(f"/api/qa/pairs/{pair}", body), as_json)


# --- one pair ---------------------------------------------------------------------------------------------------


def _add_moving(qa: click.Group) -> None:
    def simple(name: str, told: str) -> None:
        @verb(qa, name, example=f"burnish qa {name} 0b6c5a1e-3f51-4a54-9c1c-2f6a7f9d2f10", exits=GATEWAY_EXITS)
        @PAIR
        @VERSION
        @REASON
        @data_option
        @json_option
        def move(pair: UUID, version: int | None, reason: str, data: Path, as_json: bool) -> None:
            with gateway(data) as api:
                body = {"version": version or _version(api, pair), "reason": reason}
                _tell_one(api.post(f"/api/qa/pairs/{pair}/{name}", body), as_json)

        move.help = told

    simple("archive", "Put a pair away: it is found no more, and can be restored.")
    simple("restore", "Bring a pair back: an archived one as a draft, a superseded one as it was.")
    simple("verify", "Record that you found the answer right.")

    @verb(
        qa, "publish", example="burnish qa publish 0b6c…\nburnish qa publish 0b6c… --status draft", exits=GATEWAY_EXITS
    )
    @PAIR
    @click.option("--status", type=click.Choice(get_args(OpenStatus)), default="published", show_default=True)
    @VERSION
    @REASON
    @data_option
    @json_option
    def publish(pair: UUID, status: str, version: int | None, reason: str, data: Path, as_json: bool) -> None:
        """Publish a pair, or take it back."""
        with gateway(data) as api:
            body = {"version": version or _version(api, pair), "status": status, "reason": reason}
            _tell_one(api.post(f"/api/qa/pairs/{pair}/publish", body), as_json)

    @verb(qa, "review", example="burnish qa review 0b6c… approved", exits=GATEWAY_EXITS)
    @PAIR
    @click.argument("outcome", type=click.Choice(get_args(Outcome)))
    @click.option(
        "--to-version", type=INTEGER, help="With reverted: whose words come back.  [default: the last others]"
    )
    @VERSION
    @REASON
    @data_option
    @json_option
    def review(
        pair: UUID, outcome: str, to_version: int | None, version: int | None, reason: str, data: Path, as_json: bool
    ) -> None:
        """Record what came of a review."""
        if to_version is not None and outcome != "reverted":
            raise click.UsageError("--to-version goes with reverted")
        with gateway(data) as api:
            body = {"version": version or _version(api, pair), "outcome": outcome, "reason": reason}
            if to_version is not None:
                body["to_version"] = to_version
            _tell_one(api.post(f"/api/qa/pairs/{pair}/review", body), as_json)


# --- several pairs ----------------------------------------------------------------------------------------------


def _add_joining(qa: click.Group) -> None:
    @verb(qa, "merge", example="burnish qa merge 0b6c… 7d1e… --reason 'the same question'", exits=GATEWAY_EXITS)
    @click.argument("into", type=click.UUID)
    @click.argument("absorbed", metavar="PAIR...", type=click.UUID, nargs=-1, required=True)
    @REASON
    @data_option
    @json_option
    def merge(into: UUID, absorbed: tuple[UUID, ...], reason: str, data: Path, as_json: bool) -> None:
        """Let one pair take up others, with their phrasings, tags and citations. It can be undone."""
        with gateway(data) as api:
            body = {"into": _ref(api, into), "absorbed": [_ref(api, one) for one in absorbed], "reason": reason}
            _tell_several(api.post("/api/qa/pairs/merge", body), as_json)

    @verb(qa, "supersede", example="burnish qa supersede 0b6c… 7d1e…", exits=GATEWAY_EXITS)
    @PAIR
    @click.argument("by", type=click.UUID)
    @VERSION
    @REASON
    @data_option
    @json_option
    def supersede(pair: UUID, by: UUID, version: int | None, reason: str, data: Path, as_json: bool) -> None:
        """Let the pair BY stand in for PAIR."""
        with gateway(data) as api:
            body = {"version": version or _version(api, pair), "superseded_by": str(by), "reason": reason}
            _tell_one(api.post(f"/api/qa/pairs/{pair}/supersede", body), as_json)

    @verb(qa, "split", example="burnish qa split 0b6c… parts.md", exits=GATEWAY_EXITS)
    @PAIR
    @click.argument("parts", metavar="FILE", type=FILE)
    @VERSION
    @REASON
    @data_option
    @json_option
    def split(pair: UUID, parts: Path, version: int | None, reason: str, data: Path, as_json: bool) -> None:
        """Make several pairs of one, those of a bundle (`qa template`). It can be undone."""
        told = _parts(parts)
        with gateway(data) as api:
            body = {"version": version or _version(api, pair), "parts": told, "reason": reason}
            _tell_several(api.post(f"/api/qa/pairs/{pair}/split", body), as_json)


def _parts(path: Path) -> list[dict[str, Any]]:
    """The blocks of a bundle as parts. Raises `Failure` that names each problem with its line."""
    from libs.files import UnreadableFile, read_bytes
    from services.qa_ingest.extractors.base import File, FileRejected
    from services.qa_ingest.extractors.yaml_frontmatter import YamlFrontmatter

    try:
        found = YamlFrontmatter().extract(File(path.name, read_bytes(path, MAX_PARTS_BYTES))).pairs
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error
    except FileRejected as error:
        raise Failure(
            "\n".join(f"{path.name}:{one.line}: {one.message}" for one in error.problems), code=USAGE
        ) from error
    if len(found) < 2:
        raise Failure(f"{path.name}: a pair is split into two at least; there is {len(found)}", code=USAGE)
    return [
        {
            "question": one.question,
            "answer_standard": one.answer_standard,
            "answer_advanced": one.answer_advanced,
            "alternate_phrasings": [variant.question for variant in one.variants],
            **({"scope_tags": list(one.scope_tags)} if one.scope_tags else {}),
            **({"anti_scope_tags": list(one.anti_scope_tags)} if one.anti_scope_tags else {}),
        }
        for one in found
    ]


# --- what waits for people --------------------------------------------------------------------------------------


def _add_waiting(qa: click.Group) -> None:
    @verb(qa, "reviews", example="burnish qa reviews --within 30", exits=GATEWAY_EXITS)
    @click.option("--overdue", is_flag=True, help="Only those that are overdue.")
    @click.option("--within", type=click.IntRange(0, 1_095), default=0, help="Also those that are due in so many days.")
    @click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
    @data_option
    @json_option
    def reviews(overdue: bool, within: int, limit: int, data: Path, as_json: bool) -> None:
        """List the pairs whose review is due, the longest due first."""
        asked = {"state": "overdue" if overdue else "due", "within_days": within, "limit": limit}
        with gateway(data) as api:
            found = read(api.get("/api/qa/reviews", **asked), answers.Reviews)["reviews"]
        if as_json:
            print_json(found)
            return
        rows = [
            (
                one["question"],
                "overdue" if one["overdue"] else "due",
                when(one["due_at"]),
                one["review_status"],
                one["pair_id"],
            )
            for one in found
        ]
        print_table(("question", "state", "since", "review", "pair"), rows, empty="no review is due")

    @verb(qa, "suggestions", example="burnish qa suggestions --kind proposed_edit", exits=GATEWAY_EXITS)
    @click.option("--kind", type=click.Choice(get_args(SuggestionKind)), help="Only of this kind.")
    @click.option("--state", type=click.Choice(get_args(SuggestionState)), default="open", show_default=True)
    @click.option("--pair", type=click.UUID, help="Only about this pair.")
    @click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
    @data_option
    @json_option
    def suggestions(kind: str | None, state: str, pair: UUID | None, limit: int, data: Path, as_json: bool) -> None:
        """List what somebody should decide: proposed edits, duplicates, drafts and finals, changed sources."""
        asked = {"kind": kind, "state": state, "pair_id": str(pair) if pair else None, "limit": limit}
        with gateway(data) as api:
            found = read(api.get("/api/qa/suggestions", **asked), answers.Suggestions)["suggestions"]
        if as_json:
            print_json(found)
            return
        rows = [
            (
                one["kind"],
                one["question"],
                one["other_question"],
                one["created_by"],
                when(one["created_at"]),
                one["suggestion_id"],
            )
            for one in found
        ]
        print_table(("kind", "question", "other", "by", "made", "suggestion"), rows, empty="nothing waits")

    @verb(qa, "accept", example="burnish qa accept 5b7e…\nburnish qa accept 5b7e… --as supersede", exits=GATEWAY_EXITS)
    @click.argument("suggestion", type=click.UUID)
    @click.option(
        "--as", "resolution", type=click.Choice(get_args(Resolution)), help="How; as usual for its kind otherwise."
    )
    @click.option("--keep", type=click.UUID, help="Which pair stays, of two.  [default: the older, or the final]")
    @click.option("--version", type=INTEGER, help="The version of the pair that an edit is applied to.")
    @REASON
    @data_option
    @json_option
    def accept(
        suggestion: UUID,
        resolution: str | None,
        keep: UUID | None,
        version: int | None,
        reason: str,
        data: Path,
        as_json: bool,
    ) -> None:
        """Do what is suggested: apply the edit, merge the duplicates, let the final supersede the draft."""
        body = {"resolution": resolution, "keep": str(keep) if keep else None, "version": version, "reason": reason}
        with gateway(data) as api:
            _tell_decided(api.post(f"/api/qa/suggestions/{suggestion}/accept", body), as_json)

    @verb(qa, "dismiss", example="burnish qa dismiss 5b7e…", exits=GATEWAY_EXITS)
    @click.argument("suggestion", type=click.UUID)
    @REASON
    @data_option
    @json_option
    def dismiss(suggestion: UUID, reason: str, data: Path, as_json: bool) -> None:
        """Leave everything as it is."""
        with gateway(data) as api:
            _tell_decided(api.post(f"/api/qa/suggestions/{suggestion}/dismiss", {"reason": reason}), as_json)


def _add_ending(qa: click.Group) -> None:
    @verb(qa, "undo", example="burnish qa undo 9f02…", exits=GATEWAY_EXITS)
    @click.argument("operation", type=click.UUID)
    @REASON
    @data_option
    @json_option
    def undo(operation: UUID, reason: str, data: Path, as_json: bool) -> None:
        """Bring every pair back to where an operation found it (`qa show` names the operations)."""
        with gateway(data) as api:
            _tell_several(api.post(f"/api/qa/operations/{operation}/undo", {"reason": reason}), as_json)

    @verb(qa, "delete", example="burnish qa delete 0b6c… --yes", exits=GATEWAY_EXITS)
    @PAIR
    @VERSION
    @REASON
    @click.option("--yes", is_flag=True, help="Delete without being asked.")
    @data_option
    @json_option
    def delete(pair: UUID, version: int | None, reason: str, yes: bool, data: Path, as_json: bool) -> None:
        """Remove a pair for good, with its history. `qa archive` can be undone, this cannot."""
        if not yes and not (can_ask() and confirmed("remove it for good, with its history?")):
            raise Failure("nothing was deleted", "say --yes to delete it without being asked", USAGE)
        with gateway(data) as api:
            params = {"version": version or _version(api, pair), "reason": reason}
            gone = read(api.delete(f"/api/qa/pairs/{pair}", **params), answers.PairDeleted)
        if as_json:
            print_json(gone)
        else:
            remark(f"pair {gone['pair_id']} is gone")


# --- answers ----------------------------------------------------------------------------------------------------


def _version(api: Gateway, pair: UUID) -> int:
    return read(api.get(f"/api/qa/pairs/{pair}"), answers.Pair)["version"]


def _ref(api: Gateway, pair: UUID) -> dict[str, Any]:
    return {"id": str(pair), "version": _version(api, pair)}


def _tell_one(reply: Any, as_json: bool) -> None:
    done = read(reply, answers.CuratedPair)
    if as_json:
        print_json(done)
        return
    _show(done["pair"])
    remark(f"`burnish qa undo {done['operation_id']}` undoes it")


def _tell_several(reply: Any, as_json: bool) -> None:
    done = read(reply, answers.CuratedPairs)
    if as_json:
        print_json(done)
        return
    for pair in done["pairs"]:
        _show(pair)
    remark(f"operation {done['operation_id']}")


def _tell_suggestion(reply: Any, as_json: bool) -> None:
    found = read(reply, answers.SuggestionReply)["suggestion"]
    if as_json:
        print_json(found)
    else:
        answer(f"suggestion {found['suggestion_id']}: {found['state']}")


def _tell_decided(reply: Any, as_json: bool) -> None:
    done = read(reply, answers.SuggestionDecided)
    if as_json:
        print_json(done)
        return
    answer(f"suggestion {done['suggestion']['suggestion_id']}: {done['suggestion']['state']}")
    for pair in done["pairs"]:
        _show(pair)
    if done["operation_id"]:
        remark(f"`burnish qa undo {done['operation_id']}` undoes it")


def _show(pair: answers.Pair) -> None:
    superseded = f", superseded by {pair['superseded_by']}" if pair["superseded_by"] else ""
    answer(f"{pair['id']}  {pair['publication_status']}, version {pair['version']}{superseded}  {pair['question']}")
