"""`qa import-legacy`: an older platform's table of questions and answers becomes pairs, all of a file or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.verbs import data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import FILE, WORKSPACE
from burnish.printer import answer, plain, print_json, remark

if TYPE_CHECKING:
    from services.qa_ingest.domain.legacy import Legacy

MAX_FILE_BYTES = 50_000_000


def add_to(qa: click.Group) -> None:
    """Register the verb."""

    @verb(
        qa,
        "import-legacy",
        example="burnish qa import-legacy content_items.jsonl --workspaces content_item_workspaces.csv",
        exits={
            **GATEWAY_EXITS,
            0: "every pair of the file is in the library",
            FAILED: "nothing of the file is; see why",
        },
    )
    @click.argument("path", metavar="FILE", type=FILE)
    @click.option(
        "--workspaces", type=FILE, metavar="FILE", help="content_item_workspaces as CSV, where the rows do not say it."
    )
    @click.option(
        "--workspace", type=WORKSPACE, metavar="NAME|ID", help="Put all of them there, whatever the rows say."
    )
    @click.option("--check", is_flag=True, help="Only read the file and say what is wrong; nothing is sent.")
    @data_option
    @json_option
    def import_legacy(
        path: Path, workspaces: Path | None, workspace: str | None, check: bool, data: Path, as_json: bool
    ) -> None:
        """Import pairs of an older platform: its table `content_items`, as JSON lines or as CSV with a header.

        The question is taken from the `Q:` line of the content; id, status and review fields are kept. Vectors are made
        anew, of the question alone. A row without a workspace fails the file, and the same file again changes nothing.
        """
        found = _read(path, workspaces, workspace)
        told: answers.LegacyImported | None = None
        if not check:
            body = {
                "pairs": [pair.model_dump(mode="json", exclude_none=True) for pair in found.pairs],
                "file": path.name,
            }
            with gateway(data) as api:
                told = read(api.post("/api/qa/legacy", body), answers.LegacyImported)
        notices = [{"line": each.line, "message": each.message} for each in found.notices]
        if as_json:
            print_json(
                {"file": str(path), "pairs": len(found.pairs), "others": found.others, "notices": notices}
                | (dict(told) if told else {})
            )
            return
        for notice in found.notices:
            remark(f"{plain(path.name)}:{notice.line}: {plain(notice.message)}")
        answer(f"{plain(path)}: {_sentence(found, told)}")


def _sentence(found: Legacy, told: answers.LegacyImported | None) -> str:
    others = f"; {found.others} rows of other types passed by" if found.others else ""
    if told is None:
        return f"{len(found.pairs)} pairs, all of them readable{others}"
    return f"{told['imported']} pairs imported, {told['there_already']} there already{others}"


def _read(path: Path, workspaces: Path | None, workspace: str | None) -> Legacy:
    from libs.files import UnreadableFile, read_text
    from services.qa_ingest.domain import legacy
    from services.qa_ingest.domain.legacy import LegacyRejected

    file = path
    try:
        memberships = None
        if workspaces is not None:
            file = workspaces
            memberships = legacy.read_memberships(read_text(workspaces, MAX_FILE_BYTES))
            file = path
        into = UUID(workspace) if workspace else None
        text = read_text(path, MAX_FILE_BYTES)
        return legacy.read(text, is_csv=path.suffix.casefold() == ".csv", memberships=memberships, into=into)
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error
    except LegacyRejected as error:
        told = "\n".join(f"{plain(file.name)}:{each.line}: {plain(each.message)}" for each in error.problems)
        raise Failure(
            f"nothing is imported:\n{told}", "mend these lines, then import the file again", FAILED
        ) from error
