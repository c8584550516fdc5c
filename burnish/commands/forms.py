"""`qa match`: the best pair for each question of a list or a form, and the form filled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.verbs import data_option, gateway, json_option, verb
from burnish.failure import GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import FILE, NAME, NEW_FILE, WORKSPACE, Text
from burnish.printer import answer, plain, print_json, print_table, remark

if TYPE_CHECKING:
    from burnish.client import Gateway

MAX_FORM_BYTES = 16 * 1024 * 1024
MAX_QUESTION = 2_000
BYTES = "application/octet-stream"
NOTHING = "nothing answers any of them; drafts are found with --status draft"
HEAD = ("place", "question", "match", "similarity", "answer", "outcome")
STATUSES = ("draft", "in_review", "published", "archived")
STRENGTHS = ("exact", "strong", "fair", "weak")


def add_to(qa: click.Group) -> None:
    """Register the verb."""

    @verb(
        qa,
        "match",
        example='burnish qa match questionnaire.xlsx --fill answered.xlsx\nburnish qa match -q "Do you encrypt data?"',
        exits={**GATEWAY_EXITS, 0: "every question is listed, found or not"},
    )
    @click.argument("form", metavar="[FORM]", type=FILE, required=False)
    @click.option("-q", "--question", "questions", multiple=True, type=Text(MAX_QUESTION), help="Instead of a form.")
    @click.option("--fill", "out", type=NEW_FILE, metavar="OUT", help="A new file: the form with the answers put in.")
    @click.option(
        "--fill-from",
        type=click.Choice(STRENGTHS),
        default="strong",
        show_default=True,
        help="How close a pair must be to be put in.",
    )
    @click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Which pairs; published ones otherwise.")
    @click.option("--include", multiple=True, type=NAME, metavar="TAG", help="Only with one of these tags.")
    @click.option("--exclude", multiple=True, type=NAME, metavar="TAG", help="Not with any of these tags.")
    @click.option("--workspace", type=WORKSPACE, metavar="NAME|ID", help="Whose pairs.  [default: that of the token]")
    @data_option
    @json_option
    def match(
        form: Path | None,
        questions: tuple[str, ...],
        out: Path | None,
        fill_from: str,
        status: tuple[str, ...],
        include: tuple[str, ...],
        exclude: tuple[str, ...],
        workspace: str | None,
        data: Path,
        as_json: bool,
    ) -> None:
        """Find the best pair for each question of a form (.xlsx, .docx, .pdf), and fill the form.

        Only empty answer cells and fields are filled, and nothing else in the file changes. What is not close enough
        stays empty, for a person. A PDF without fields is listed only.
        """
        if (form is None) == (not questions):
            raise Failure("a form or questions were expected, and not both", "burnish qa match FORM, or -q", USAGE)
        if out is not None and form is None:
            raise Failure("there is no form to fill", "burnish qa match FORM --fill OUT", USAGE)
        if out is not None and out.exists():
            raise Failure(f"{out} is there already; nothing is written over", "name a new file", USAGE)
        asked = {
            "workspace_id": workspace,
            "status": list(status) or None,
            "include": list(include) or None,
            "exclude": list(exclude) or None,
        }
        with gateway(data) as api:
            if form is None:
                answered = api.post("/api/qa/match", {"questions": list(questions)}, params=asked)
            else:
                content = _content(form)
                remark(f"{plain(form.name)}: {len(content):,} bytes")
                more = {"fill": out is not None, "fill_from": fill_from}
                answered = api.send("/api/qa/match", content, BYTES, params={**asked, **more})
            found = read(answered, answers.MatchResults)
            file = _fetched(api, found, workspace) if out is not None else None
        if out is not None and file is not None:
            _write(out, file)
        if as_json:
            print_json({**found, "file": str(out) if file is not None else None})
            return
        _show(found, out, file)


def _show(found: answers.MatchResults, out: Path | None, file: bytes | None) -> None:
    rows = [_row(one) for one in found["questions"]]
    shown = slice(1, 5) if found["format"] == "list" else slice(None)  # questions of no form have no place
    print_table(HEAD[shown], [row[shown] for row in rows], empty="no question")
    if not any(one["match"] for one in found["questions"]):
        remark(NOTHING)
    for notice in found["notices"]:
        remark(plain(notice))
    if out is not None:
        count = len(found["questions"])
        remark(f"{found['filled']} of {count} question{'' if count == 1 else 's'} answered")
        answer(plain(out) if file is not None else "nothing was close enough to be put in, so no file is written")


def _row(one: answers.MatchedQuestion) -> tuple[Any, ...]:
    match = one["match"]
    outcome = (one["outcome"] or "").replace("_", " ")
    told = f"{outcome}: {one['why']}" if one["why"] and outcome else outcome
    best = (match["match_strength"], match["similarity"], match["answer_preview"][:60]) if match else ("", None, "")
    return one["place"] or "", one["question"][:60], *best, told


def _content(form: Path) -> bytes:
    from libs.files import UnreadableFile, read_bytes

    try:
        return read_bytes(form, MAX_FORM_BYTES)
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error


def _fetched(api: Gateway, found: answers.MatchResults, workspace: str | None) -> bytes | None:
    if found["form"] is None:
        return None
    return api.fetch(f"/api/qa/match/{found['form']['form_id']}/file", workspace_id=workspace)


def _write(out: Path, file: bytes) -> None:
    try:
        with open(out, "xb") as made:
            made.write(file)
            made.flush()
            os.fsync(made.fileno())
    except OSError as error:
        raise Failure(f"{out} cannot be written: {error.strerror or type(error).__name__}", code=USAGE) from error
