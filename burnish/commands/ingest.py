"""`qa ingest`: brings files, folders and objects of bound buckets into the library, and tells what came of each."""

from __future__ import annotations

import os
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.verbs import data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import NAME, SOURCE, USD, WORKSPACE, S3Address
from burnish.printer import answer, plain, print_json, remark
from libs.contracts.vocabulary import registered

if TYPE_CHECKING:
    from burnish.client import Gateway

MAX_FILE_BYTES = 50 * 1024 * 1024
MAX_FILES = 10_000
PART_BYTES = 2 * 1024 * 1024
SHOWN_PROBLEMS = 20
READ_BY_MODEL = "llm_extraction"
WAYS = {".docx": "docx_pattern_a, docx_pattern_b or docx_pattern_c", ".xlsx": "xlsx_table_v1", ".csv": "xlsx_table_v1"}
"""What reads a kind of file that is no bundle: it runs only where it is named."""


@dataclass(frozen=True)
class Local:
    """A file here, and the key that it gets."""

    path: Path
    key: str


def add_to(qa: click.Group) -> None:
    """Register the verb."""

    @verb(
        qa,
        "ingest",
        example="burnish qa ingest answers.md\n"
        "burnish qa ingest handbook/ --extractor docx_pattern_a\n"
        "burnish qa ingest notes.txt --extractor llm_extraction --estimate\n"
        "burnish qa ingest s3://acme-answers/faq/",
        exits={
            **GATEWAY_EXITS,
            0: "every file is in the library, or was there already",
            FAILED: "a file was rejected, or is not read yet; the others are in the library",
        },
    )
    @click.argument("sources", metavar="PATH|s3://BUCKET/KEY...", type=SOURCE, nargs=-1, required=True)
    @click.option("--extractor", type=click.Choice(registered("extractors")), help="How to read them; else as bundles.")
    @click.option("--workspace", type=WORKSPACE, help="Whose library: its name or id; else that of the token.")
    @click.option("--bucket", type=NAME, help="Put the files into this bucket, which is read as it is bound.")
    @click.option("--estimate", is_flag=True, help=f"Say what {READ_BY_MODEL} would cost, and do nothing.")
    @click.option("--max-usd", type=USD, metavar="USD", help=f"What {READ_BY_MODEL} may cost in all.")
    @data_option
    @json_option
    def ingest(
        sources: Sequence[Path | S3Address],
        extractor: str | None,
        workspace: str | None,
        bucket: str | None,
        estimate: bool,
        max_usd: str | None,
        data: Path,
        as_json: bool,
    ) -> None:
        """Bring files into the library of a running installation, and say what became of each.

        A folder is taken with all that is below it, less what begins with a dot. A file that is there already under
        the same path is replaced, and the same file again changes nothing. What is named s3://… must be in a bucket
        that feeds the library: nothing is copied, it is read now instead of at its next turn.

        llm_extraction lets a model read prose. It needs --max-usd, which holds for all files together: where the most
        that they can cost is more, nothing is asked. What it finds waits for people.
        """
        asked: dict[str, Any] = {"extractor": extractor, "bucket": bucket, "workspace_id": workspace}
        _require_sense(extractor, estimate, max_usd)
        with gateway(data) as api:
            todo = [one for source in sources for one in _named(api, source, asked)]
            if not todo:
                raise Failure("there is no file", "name a file, or a folder with files in it", USAGE)
            caps: list[str] = []
            if extractor == READ_BY_MODEL:
                estimates = _estimated(api, todo, asked)
                if estimate:
                    _show_estimates(estimates, as_json)
                    return
                caps = _caps(estimates, max_usd)
            told = []
            for n, one in enumerate(todo, 1):
                done = _bring(api, one, {**asked, "max_usd": caps[n - 1]} if caps else asked)
                told.append(done)
                if not as_json:
                    _show(done, one)
                if len(todo) > 1:
                    remark(f"{n} of {len(todo)}: {plain(done['file'])[:200]}: {done['outcome']}")
        if as_json:
            print_json(told)
        elif len(told) > 1:
            _sum_up(told)
        raise SystemExit(FAILED if any(one["outcome"] in ("rejected", "waiting", "failed") for one in told) else 0)


# --- what is meant ------------------------------------------------------------------------------------------------


def _named(api: Gateway, source: Path | S3Address, asked: dict[str, Any]) -> list[Local | answers.BucketObject]:
    if isinstance(source, S3Address):
        return list(_objects(api, source, asked))
    if not source.is_dir():
        return [Local(source, _key(source))]
    found = [Local(path, _key(path)) for path in _files(source)]
    if len(found) > MAX_FILES:
        raise Failure(f"{source} has more than {MAX_FILES:,} files", "name folders below it", USAGE)
    return [*found]


def _objects(api: Gateway, source: S3Address, asked: dict[str, Any]) -> list[answers.BucketObject]:
    if asked["extractor"] or asked["bucket"]:
        raise Failure(
            "--extractor and --bucket are for files of this machine", "a bucket is read as it is bound", USAGE
        )
    params = {"s3_bucket": source.bucket, "prefix": source.prefix, "workspace_id": asked["workspace_id"]}
    found = read(api.get("/api/qa/objects", **params, limit=MAX_FILES), answers.BucketObjects)
    exact = [one for one in found["objects"] if one["object_key"] == source.prefix]
    if not exact and not found["objects"]:
        raise Failure(f"there is nothing under s3://{source.bucket}/{source.prefix}", code=USAGE)
    if found["more"] and not exact:
        raise Failure(f"there are more than {MAX_FILES:,} objects", "name a longer prefix", USAGE)
    return exact or found["objects"]


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below a folder, no links, nothing that begins with a dot."""
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            if not name.startswith(".") and not path.is_symlink() and path.is_file():
                yield path


def _key(path: Path) -> str:
    """Its path from where we stand, or from the root: the same file has the same key, and another has another."""
    whole = Path(os.path.abspath(path))
    try:
        return whole.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return whole.as_posix().lstrip("/")


# --- what it costs -------------------------------------------------------------------------------------------------


def _require_sense(extractor: str | None, estimate: bool, max_usd: str | None) -> None:
    if extractor != READ_BY_MODEL and (estimate or max_usd is not None):
        raise Failure(
            "--estimate and --max-usd are for a model", f"only --extractor {READ_BY_MODEL} costs something", USAGE
        )
    if extractor == READ_BY_MODEL and not estimate and max_usd is None:
        raise Failure(f"{READ_BY_MODEL} needs --max-usd", "--estimate says how much it can cost", USAGE)


def _estimated(
    api: Gateway, todo: Sequence[Local | answers.BucketObject], asked: dict[str, Any]
) -> list[tuple[str, answers.ExtractionEstimate]]:
    from libs.files import UnreadableFile, read_bytes

    found = []
    for one in todo:
        if not isinstance(one, Local):
            raise Failure(f"{READ_BY_MODEL} is for files of this machine", "name a file or a folder", USAGE)
        try:
            content = read_bytes(one.path, PART_BYTES)
        except UnreadableFile as error:
            raise Failure(str(error), code=USAGE) from error
        body = {"object_key": one.key, "content_base64": b64encode(content).decode()}
        if asked["workspace_id"]:
            body["workspace_id"] = asked["workspace_id"]
        found.append((str(one.path), read(api.post("/api/qa/documents/estimate", body), answers.ExtractionEstimate)))
    return found


def _show_estimates(estimates: Sequence[tuple[str, answers.ExtractionEstimate]], as_json: bool) -> None:
    if as_json:
        print_json([{"file": file, **estimate} for file, estimate in estimates])
        return
    for file, one in estimates:
        before = f", {one['answered_before']} answered before" if one["answered_before"] else ""
        calls = f"{one['calls']} call{'' if one['calls'] == 1 else 's'}"
        told = f"{calls} of {plain(one['model'])}{before}, at most {_most(one)} USD"
        answer(f"{plain(file)}: {one['characters']:,} characters, {told}")
    if len(estimates) > 1:
        answer(f"{len(estimates)} files: at most {sum((_most(one) for _, one in estimates), Decimal())} USD")


def _caps(estimates: Sequence[tuple[str, answers.ExtractionEstimate]], max_usd: str | None) -> list[str]:
    """What each file may cost: together no more than was allowed. Raises `Failure` where they could."""
    each = [_most(one) for _, one in estimates]
    most, allowed = sum(each, Decimal()), Decimal(max_usd or 0)
    if most > allowed:
        raise Failure(f"it can cost {most} USD, more than {allowed}: nothing was asked", "name less, or allow more")
    return [str(allowed)] if len(each) == 1 else [str(one) for one in each]


def _most(one: answers.ExtractionEstimate) -> Decimal:
    try:
        most = Decimal(one["most_usd"])
    except ArithmeticError:
        most = Decimal("NaN")
    if not most.is_finite():
        raise Failure("the gateway's estimate is no number", "is it a Burnish gateway?")
    return most


# --- bringing it --------------------------------------------------------------------------------------------------


def _bring(api: Gateway, one: Local | answers.BucketObject, asked: dict[str, Any]) -> dict[str, Any]:
    from libs.files import UnreadableFile, read_bytes

    if isinstance(one, Local):
        name = str(one.path)
        try:
            content = read_bytes(one.path, MAX_FILE_BYTES)
        except UnreadableFile as error:
            return {"file": name, "outcome": "failed", "reason": error.reason, "document_id": None, "report": None}
        followed = _upload(api, one, content, asked)
    else:
        name = one["object_key"]
        body = {"bucket": one["bucket"], "object_key": name, "workspace_id": one["workspace_id"]}
        followed = read(api.post("/api/qa/objects/follow", body), answers.FollowedAnswer)["followed"]
    if followed is None:
        raise Failure(f"{plain(name)}: the gateway lost a piece of it", "try again")
    report = None
    if followed["document_id"] is not None and followed["outcome"] != "waiting":
        where = f"/api/qa/documents/{followed['document_id']}/report"
        report = read(api.get(where, workspace_id=followed["workspace_id"]), answers.IngestReport)
        if report["outcome"] == "rejected":  # it was refused before, and still is
            followed["outcome"] = "rejected"
    return {"file": name, **followed, "report": report}


def _upload(api: Gateway, one: Local, content: bytes, asked: dict[str, Any]) -> answers.FollowedObject | None:
    pieces = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)] or [b""]
    given = {key: value for key, value in asked.items() if value is not None}
    upload_id, followed = str(uuid4()), None
    for n, piece in enumerate(pieces):
        body = {
            **given,
            "object_key": one.key,
            "upload_id": upload_id,
            "part": n,
            "parts": len(pieces),
            "content_base64": b64encode(piece).decode(),
        }
        followed = read(api.post("/api/qa/documents", body), answers.FollowedAnswer)["followed"]
    return followed


# --- telling what came of it ----------------------------------------------------------------------------------------


def _show(done: dict[str, Any], one: Local | answers.BucketObject) -> None:
    file, report = plain(done["file"]), done["report"]
    if report is None:
        told = "still being read: see `burnish qa documents`" if done["outcome"] == "waiting" else done["outcome"]
        answer(f"{file}: {told}" + (f": {plain(done['reason'])}" if done.get("reason") else ""))
        return
    if done["outcome"] == "rejected":
        answer(f"{file}: rejected: {plain(report['document']['code'])}")
        _each(file, "error", [(problem.get("line"), problem.get("message")) for problem in report["problems"]])
        hint = WAYS.get(Path(done["file"]).suffix.casefold())
        if hint and report["document"].get("extractor") == "yaml_frontmatter_v1":
            answer(f"  it is no bundle; {hint} may read it: name one with --extractor")
        return
    pairs, left_out = report["document"]["pairs"], len(report["rejects"])
    answer(f"{file}: {done['outcome']}, {pairs} pair{'' if pairs == 1 else 's'}, {left_out} left out")
    _each(
        file, "left out", [(_line(each), f"{each.get('reason')}: {each.get('excerpt')}") for each in report["rejects"]]
    )
    _each(file, "warning", [(_line(each), each.get("message")) for each in report["notices"]])


def _each(file: str, what: str, told: Sequence[tuple[Any, Any]]) -> None:
    for line, message in told[:SHOWN_PROBLEMS]:
        place = f"{file}:{plain(line)}" if line else file
        answer(f"  {place}: {what}: {plain(message)[:300]}")
    if len(told) > SHOWN_PROBLEMS:
        answer(f"  and {len(told) - SHOWN_PROBLEMS} more: `burnish qa report` tells all")


def _line(each: Any) -> Any:
    place = each.get("place")
    return place.get("line") or place.get("row_index") if isinstance(place, dict) else None


def _sum_up(told: Sequence[dict[str, Any]]) -> None:
    outcomes = Counter(one["outcome"] for one in told)
    reports = [one["report"] for one in told if one["report"]]
    pairs = sum(report["document"]["pairs"] for report in reports if report["outcome"] != "rejected")
    left_out = sum(len(report["rejects"]) for report in reports)
    each = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    answer(f"{len(told)} files: {each}; {pairs} pairs, {left_out} left out")
