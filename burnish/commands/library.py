"""The Q&A library: `qa lint`, `qa convert`, `qa template`, and what is in it: `qa search|show|documents|report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from burnish import answers
from burnish.answers import read
from burnish.commands import curate, export, forms, ingest, legacy
from burnish.commands.show import when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import EXITS, FAILED, GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import FILE, MOMENT, NAME, TEXT, WORKSPACE
from burnish.printer import answer, exact, plain, print_json, print_table, remark
from libs.contracts.vocabulary import registered

if TYPE_CHECKING:
    from services.qa_ingest.domain.blocks import Problem
    from services.qa_ingest.domain.envelope import Extracted

MAX_BUNDLE_BYTES = 20_000_000
NOTHING = "nothing answers it; drafts are found with --status draft"
STATUSES = ("draft", "in_review", "published", "archived")


@dataclass(frozen=True)
class Linted:
    """One file: how many pairs it has, or why none of it can be taken."""

    file: str
    pairs: int
    problems: list[Problem]
    warnings: list[Problem]


_workspace_option = click.option(
    "--workspace", type=WORKSPACE, metavar="NAME|ID", help="Whose library; else that of the token, or `default`."
)


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    qa = Group("qa", help="Questions and answers: check the files that hold them, search what is known.")
    group.add_command(qa)

    @verb(
        qa,
        "lint",
        example="burnish qa template > answers.md\nburnish qa lint answers.md",
        exits={**EXITS, 0: "every file is a bundle", FAILED: "a file has problems; they are listed with their lines"},
    )
    @click.argument("paths", metavar="FILE...", type=FILE, nargs=-1, required=True)
    @json_option
    def lint(paths: Sequence[Path], as_json: bool) -> None:
        """Check bundles: every problem with its line, and what would be right. Nothing is sent anywhere."""
        linted = [_lint(path) for path in paths]
        if as_json:
            print_json([asdict(one) for one in linted])
        else:
            for one in linted:
                _show(one)
        raise SystemExit(FAILED if any(one.problems for one in linted) else 0)

    @verb(
        qa,
        "convert",
        example="burnish qa convert faq.md > answers.md\nburnish qa convert --extractor pseudo_yaml_v1 library.md",
        exits={**EXITS, 0: "a bundle is on stdout; what was left out is on stderr", FAILED: "no pair was found"},
    )
    @click.argument("path", metavar="FILE", type=FILE)
    @click.option(
        "--extractor",
        type=click.Choice(registered("extractors")),
        help="How to read it; else what fits.",
    )
    @json_option
    def convert(path: Path, extractor: str | None, as_json: bool) -> None:
        """Write what a file holds as a canonical bundle. What is no pair is named, with its line."""
        from services.qa_ingest.domain.bundle_writer import Unwritable, render
        from services.qa_ingest.domain.conversion import entry_of

        found = _extracted(path, extractor)
        try:
            bundle = render(map(entry_of, found.pairs), title=path.stem)
        except Unwritable as error:
            raise Failure(f"{path.name}: no bundle can say {plain(error.question)[:80]!r}: {error}") from error
        if as_json:
            print_json({"bundle": bundle, **found.model_dump(mode="json", include={"extractor", "rejects", "losses"})})
            return
        for reject in found.rejects:
            remark(
                f"{plain(path.name)}:{reject.place.line or 1}: left out: {reject.message}: {plain(reject.excerpt)[:80]}"
            )
        remark(f"{len(found.pairs)} pairs by {found.extractor}, {len(found.rejects)} passages left out")
        exact(bundle)

    _add_reading(qa)
    export.add_to(qa)
    forms.add_to(qa)
    ingest.add_to(qa)
    curate.add_to(qa)
    legacy.add_to(qa)

    @verb(qa, "template", example="burnish qa template > answers.md", exits={0: "printed", 2: EXITS[2]})
    @json_option
    def template(as_json: bool) -> None:
        """Print a bundle to start from, with every key explained."""
        text = (files("services.qa_ingest") / "templates" / "bundle.md").read_text("utf-8")
        if as_json:
            print_json({"template": text})
        else:
            exact(text)


def _add_reading(qa: click.Group) -> None:
    @verb(qa, "search", example='burnish qa search "how do I reset my password?"', exits=GATEWAY_EXITS)
    @click.argument("query", type=TEXT)
    @click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Which pairs; published ones otherwise.")
    @click.option("--include", multiple=True, type=NAME, metavar="TAG", help="Only with one of these tags.")
    @click.option("--exclude", multiple=True, type=NAME, metavar="TAG", help="Not with any of these tags.")
    @click.option("--extractions", is_flag=True, help="Also what was found and nobody has vouched for yet.")
    @click.option("--as-of", type=MOMENT, metavar="TIME", help="What held then, in the words of then.")
    @click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
    @_workspace_option
    @data_option
    @json_option
    def search(
        query: str,
        status: tuple[str, ...],
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        extractions: bool,
        as_of: str | None,
        limit: int,
        workspace: str | None,
        data: Path,
        as_json: bool,
    ) -> None:
        """Find the pairs that answer a question, best first, with how good a match each is."""
        asked = {
            "query": query,
            "status": list(status) or None,
            "include": list(include) or None,
            "exclude": list(exclude) or None,
            "include_extractions": extractions or None,
            "as_of": as_of,
            "limit": limit,
            "workspace_id": workspace,
        }
        with gateway(data) as api:
            found = read(api.get("/api/qa/search", **asked), answers.LibraryHits)
        if as_json:
            print_json(found)
            return
        rows = [
            (hit["match_strength"], hit["similarity"], hit["question"], hit["answer_preview"][:60], hit["id"])
            for hit in found["results"]
        ]
        print_table(
            ("match", "similarity", "question", "answer", "id"),
            rows,
            empty="nothing answers it; drafts are found with --status draft",
        )

    @verb(qa, "chunks", example='burnish qa chunks "how long are backups kept" --pairs', exits=GATEWAY_EXITS)
    @click.argument("query", type=TEXT)
    @click.option("--pairs", is_flag=True, help="Published pairs too, in the same list.")
    @click.option("--bucket", type=NAME, help="Only files of this bucket.")
    @click.option("--limit", type=click.IntRange(1, 50), default=10, show_default=True)
    @_workspace_option
    @data_option
    @json_option
    def chunks(
        query: str, pairs: bool, bucket: str | None, limit: int, workspace: str | None, data: Path, as_json: bool
    ) -> None:
        """Find the passages of files that have to do with a question, best first."""
        asked = {
            "query": query,
            "include_qa": pairs or None,
            "bucket": bucket,
            "limit": limit,
            "workspace_id": workspace,
        }
        with gateway(data) as api:
            found = read(api.get("/api/qa/chunks", **asked), answers.LibraryChunks)
        if as_json:
            print_json(found)
            return
        print_table(
            ("match", "similarity", "where", "text", "id"),
            [(hit["match_strength"], hit["similarity"], *_passage(hit), hit["id"]) for hit in found["results"]],
            empty="no passage has to do with it",
        )

    @verb(
        qa,
        "feedback",
        example='burnish qa feedback 0b6c5a1e-3f51-4a54-9c1c-2f6a7f9d2f10 wrong --query "where is my card?"',
        exits=GATEWAY_EXITS,
    )
    @click.argument("result", type=click.UUID)
    @click.argument("verdict", type=click.Choice(("right", "wrong")))
    @click.option("--query", required=True, type=TEXT, help="What was asked.")
    @click.option("--kind", type=click.Choice(("curated", "extracted", "chunk")), default="curated", show_default=True)
    @click.option("--comment", type=TEXT, help="Why.")
    @data_option
    @json_option
    def feedback(
        result: UUID, verdict: str, query: str, kind: str, comment: str | None, data: Path, as_json: bool
    ) -> None:
        """Say that a result of a search is right or wrong for what was asked. Your last word on it counts."""
        told = {"result_id": str(result), "verdict": verdict, "query": query, "kind": kind, "comment": comment or ""}
        with gateway(data) as api:
            kept = read(api.post("/api/qa/search/feedback", told), answers.FeedbackKept)
        if as_json:
            print_json(kept)
        else:
            answer("kept" if kept["changed"] else "kept before")

    @verb(qa, "show", example="burnish qa show 0b6c5a1e-3f51-4a54-9c1c-2f6a7f9d2f10", exits=GATEWAY_EXITS)
    @click.argument("pair", type=click.UUID)
    @click.option("--extraction", is_flag=True, help="It is the id of an extraction.")
    @_workspace_option
    @data_option
    @json_option
    def show(pair: UUID, extraction: bool, workspace: str | None, data: Path, as_json: bool) -> None:
        """Print a pair verbatim, with its history."""
        kind = "extracted" if extraction else "curated"
        with gateway(data) as api:
            found = read(
                api.get(f"/api/qa/pairs/{pair}", kind=kind, workspace_id=workspace, include_history=True), answers.Pair
            )
        if as_json:
            print_json(found)
            return
        answer(found["question"])
        for phrasing in found["alternate_phrasings"]:
            answer(f"  also: {phrasing}")
        answer(f"\n{found['answer_standard']}")
        if found["answer_advanced"]:
            answer(f"\nAdvanced:\n{found['answer_advanced']}")
        answer(f"\n{found['publication_status']}, version {found['version']}")
        for version in found["history"]:
            told = f"{version['change_type']} by {version['changed_by']} {version['change_reason']}".rstrip()
            answer(
                f"  {version['version']}  {when(version['changed_at'])}  {told}  (operation {version['operation_id']})"
            )

    @verb(qa, "documents", example="burnish qa documents", exits=GATEWAY_EXITS)
    @_workspace_option
    @data_option
    @json_option
    def documents(workspace: str | None, data: Path, as_json: bool) -> None:
        """List the files that came into the library, newest first, with what came of each."""
        with gateway(data) as api:
            found = read(api.get("/api/qa/documents", workspace_id=workspace), answers.LibraryDocuments)["documents"]
        if as_json:
            print_json(found)
            return
        rows = [
            (one["object_key"], one["state"], one["pairs"], one["rejects"], one["code"], *_came(one)) for one in found
        ]
        print_table(("file", "state", "pairs", "left out", "code", "came", "document"), rows, empty="no file came yet")

    @verb(qa, "report", example="burnish qa report 0b6c5a1e-3f51-4a54-9c1c-2f6a7f9d2f10", exits=GATEWAY_EXITS)
    @click.argument("document", type=click.UUID)
    @_workspace_option
    @data_option
    @json_option
    def report(document: UUID, workspace: str | None, data: Path, as_json: bool) -> None:
        """Say what became of every passage of a file, with a count of every character."""
        with gateway(data) as api:
            found = read(api.get(f"/api/qa/documents/{document}/report", workspace_id=workspace), answers.IngestReport)
        if as_json:
            print_json(found)
            return
        told = found["document"]
        answer(f"{told['object_key']}: {found['outcome']}, {told['pairs']} pairs, {len(found['rejects'])} left out")
        for problem in found["problems"]:
            answer(f"line {problem.get('line')}: error: {plain(problem.get('message'))}")
        for reject in found["rejects"]:
            answer(f"left out: {plain(reject.get('reason'))}: {plain(reject.get('excerpt'))[:80]}")
        if found["losses"]:
            rules = ", ".join(f"{name} {count}" for name, count in (found["losses"].get("rules") or {}).items())
            answer(
                f"characters: {found['losses'].get('total')} in all, {found['losses'].get('pairs')} in pairs,"
                f" {found['losses'].get('rejects')} left out by name{', by rule: ' if rules else ''}{rules}"
            )


def _passage(hit: answers.LibraryChunk) -> tuple[str, str]:
    """Where a row of a search among passages is, and how it begins."""
    if hit["kind"] == "chunk":
        where = " › ".join([hit.get("object_key", ""), *hit.get("section_path", [])])
        return where[:60], " ".join(hit.get("text", "").split())[:80]
    return hit.get("question", "")[:60], hit.get("answer_preview", "")[:80]


def _came(one: answers.LibraryDocument) -> tuple[str, str]:
    return when(one["received_at"]), one["document_id"]


def _lint(path: Path) -> Linted:
    from libs.files import UnreadableFile, read_bytes
    from services.qa_ingest.domain.blocks import Problem
    from services.qa_ingest.extractors.base import File, FileRejected
    from services.qa_ingest.extractors.yaml_frontmatter import YamlFrontmatter

    try:
        found = YamlFrontmatter().extract(File(path.name, read_bytes(path, MAX_BUNDLE_BYTES)))
    except UnreadableFile as error:
        return Linted(str(path), 0, [Problem(1, error.reason)], [])
    except FileRejected as error:
        return Linted(str(path), 0, list(error.problems), [])
    warnings = [Problem(notice.place.line or 1, notice.message) for notice in found.notices]
    return Linted(str(path), len(found.pairs), [], warnings)


def _extracted(path: Path, kind: str | None) -> Extracted:
    """What the extractor of this kind finds in a file, or else the first that finds a pair. Raises `Failure`."""
    from libs.files import UnreadableFile, read_bytes
    from services.qa_ingest.extractors import fitting, named
    from services.qa_ingest.extractors.base import File, FileRejected
    from services.qa_ingest.sandbox import extract_now

    try:
        file = File(path.name, read_bytes(path, MAX_BUNDLE_BYTES))
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error
    extractors = [named(kind)] if kind else fitting(path.name)
    if not extractors:
        raise Failure(f"{path.name}: no extractor reads files of this kind", "name one with --extractor", USAGE)
    tried = []
    for each in extractors:
        try:
            found = extract_now(each.kind, file)
        except FileRejected as error:
            tried.append(f"{each.kind}: {error.problems[0]}")
            continue
        if found.pairs:
            return found
        tried.append(f"{each.kind}: {len(found.rejects)} passages left out, the first: {found.rejects[0].message}")
    raise Failure(f"{path.name}: no pair was found", "\n  ".join(tried))


def _show(one: Linted) -> None:
    for told, problems in (("error", one.problems), ("warning", one.warnings)):
        for problem in problems:
            answer(f"{plain(one.file)}:{problem.line}: {told}: {plain(problem.message)}")
    if not one.problems:
        answer(f"{plain(one.file)}: {one.pairs} pair{'' if one.pairs == 1 else 's'}")
