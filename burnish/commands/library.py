"""The Q&A library: `qa lint`, `qa convert`, `qa template`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

import click

from burnish.commands.verbs import Group, json_option, verb
from burnish.failure import EXITS, FAILED, USAGE, Failure
from burnish.parameters import FILE
from burnish.printer import answer, exact, plain, print_json, remark
from libs.contracts.vocabulary import registered

if TYPE_CHECKING:
    from services.qa_ingest.domain.blocks import Problem
    from services.qa_ingest.domain.envelope import Extracted

MAX_BUNDLE_BYTES = 20_000_000


@dataclass(frozen=True)
class Linted:
    """One file: how many pairs it has, or why none of it can be taken."""

    file: str
    pairs: int
    problems: list[Problem]
    warnings: list[Problem]


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    qa = Group("qa", help="Questions and answers: check the files that hold them.")
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
        from services.qa_ingest.domain.bundle_writer import render
        from services.qa_ingest.domain.conversion import entry_of

        found = _extracted(path, extractor)
        bundle = render(map(entry_of, found.pairs), title=path.stem)
        if as_json:
            print_json({"bundle": bundle, **found.model_dump(mode="json", include={"extractor", "rejects", "losses"})})
            return
        for reject in found.rejects:
            remark(
                f"{plain(path.name)}:{reject.place.line or 1}: left out: {reject.message}: {plain(reject.excerpt)[:80]}"
            )
        remark(f"{len(found.pairs)} pairs by {found.extractor}, {len(found.rejects)} passages left out")
        exact(bundle)

    @verb(qa, "template", example="burnish qa template > answers.md", exits={0: "printed", 2: EXITS[2]})
    @json_option
    def template(as_json: bool) -> None:
        """Print a bundle to start from, with every key explained."""
        text = (files("services.qa_ingest") / "templates" / "bundle.md").read_text("utf-8")
        if as_json:
            print_json({"template": text})
        else:
            exact(text)


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
