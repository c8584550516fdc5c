"""`qa export`: the library's pairs as canonical bundles, on stdout, in one file, or one a source file in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from burnish import answers
from burnish.answers import read
from burnish.commands.verbs import data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import WORKSPACE, FileSystemPath
from burnish.printer import answer, exact, plain, print_json, remark

if TYPE_CHECKING:
    from burnish.client import Gateway
    from libs.contracts.library import ExportedPair

OTHERS = "pairs"
"""The name of the bundle for pairs that came from no file."""
TITLE = "Questions and answers"


@dataclass(frozen=True)
class Exported:
    """One bundle: its name without a suffix, the pairs in it, and its text."""

    name: str
    pairs: int
    text: str


def add_to(qa: click.Group) -> None:
    """Register the verb."""

    @verb(
        qa,
        "export",
        example="burnish qa export > answers.md\nburnish qa export --out backup/",
        exits={**GATEWAY_EXITS, 0: "every pair is written", FAILED: "a pair cannot be written as a bundle; nothing is"},
    )
    @click.option("--workspace", type=WORKSPACE, metavar="NAME|ID", help="Whose pairs.  [default: that of the token]")
    @click.option(
        "--out",
        type=FileSystemPath(),
        metavar="FOLDER|FILE",
        help="A new file (its name ends in .md), or a folder, where each source file gets a bundle of its own.",
    )
    @click.option("--sensitive", is_flag=True, help="Sensitive pairs, too; the token needs the scope pairs:sensitive.")
    @data_option
    @json_option
    def export(workspace: str | None, out: Path | None, sensitive: bool, data: Path, as_json: bool) -> None:
        """Write the library's pairs as canonical bundles. What is written is read again as the same pairs.

        Every pair is there with its status and every key that a bundle has, drafts and archived ones included. Pairs
        that others took the place of are left out and counted. Without --out, one bundle goes to stdout.
        """
        in_folder = out is not None and out.suffix.casefold() not in (".md", ".markdown")
        with gateway(data) as api:
            pairs, last = _pairs(api, workspace, sensitive)
        bundles = _bundles(pairs, apart=in_folder)
        written = _write(bundles, out, in_folder) if out is not None else []
        counts = {"pairs": len(pairs), "superseded": last["superseded"], "sensitive": last["sensitive"]}
        if as_json:
            text = bundles[0].text if out is None else None
            files = [{"file": str(path), "pairs": one.pairs} for path, one in zip(written, bundles, strict=False)]
            print_json({**counts, "files": files, "bundle": text})
            return
        if out is None:
            exact(bundles[0].text)
        for path, one in zip(written, bundles, strict=False):
            answer(f"{plain(path)}: {_number(one.pairs)}")
        _tell_what_is_left_out(last)
        remark(f"{_number(len(pairs))} exported")


def _tell_what_is_left_out(last: answers.ExportedPairs) -> None:
    if last["superseded"]:
        remark(f"{_number(last['superseded'])} left out: others took their place")
    if last["sensitive"]:
        remark(f"{_number(last['sensitive'])} left out: sensitive, and not asked for (--sensitive)")


def _number(pairs: int) -> str:
    return f"{pairs:,} pair{'' if pairs == 1 else 's'}"


def _pairs(api: Gateway, workspace: str | None, sensitive: bool) -> tuple[list[ExportedPair], answers.ExportedPairs]:
    asked = {"workspace_id": workspace, "include_sensitive": sensitive or None}
    pairs: list[ExportedPair] = []
    after: str | None = None
    while True:
        page = read(api.get("/api/qa/export", **asked, after=after), answers.ExportedPairs)
        pairs += [_readable(each) for each in page["pairs"]]
        after = page["next"]
        if after is None:
            return pairs, page
        remark(f"{_number(len(pairs))} read")


def _readable(pair: Mapping[str, Any]) -> ExportedPair:
    from libs.contracts.library import ExportedPair

    try:
        return ExportedPair.model_validate(pair)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        raise Failure(f"the gateway's answer cannot be used: pairs.{place}: {first['msg']}") from error


def _bundles(pairs: Sequence[ExportedPair], *, apart: bool) -> list[Exported]:
    """One bundle, or one for each file that pairs came from; names are unique also where case does not count."""
    from services.qa_ingest.domain.bundle_writer import joined

    blocks = list(_blocks(pairs))
    if not apart:
        return [Exported(OTHERS, len(pairs), joined(blocks, title=TITLE))]
    by_file: dict[str | None, list[str]] = {}
    for pair, block in zip(pairs, blocks, strict=True):
        by_file.setdefault(pair.file, []).append(block)
    names: set[str] = set()
    made = []
    for file, of_file in by_file.items():
        name = _new_name(file, names)
        made.append(Exported(name, len(of_file), joined(of_file, title=name)))
    return made


def _blocks(pairs: Sequence[ExportedPair]) -> Iterator[str]:
    """Each pair as a block. Raises `Failure` that names every one that cannot be written."""
    from services.qa_ingest.domain.bundle_writer import Unwritable, render_entry
    from services.qa_ingest.domain.conversion import entry_of_pair

    problems = []
    for n, pair in enumerate(pairs, 1):
        try:
            yield render_entry(entry_of_pair(pair))
        except Unwritable as error:
            problems.append(f"pair {pair.pair_id}: {error}")
        if n % 500 == 0:
            remark(f"{n:,} of {_number(len(pairs))} written")
    if problems:
        told = "\n".join(problems[:20])
        raise Failure(f"no bundle can say these pairs; nothing is written:\n{told}", "shorten them, then export again")


def _new_name(file: str | None, taken: set[str]) -> str:
    """A name for a bundle that no path can hide in: letters, digits, dots and dashes."""
    stem = (file or OTHERS).rsplit(".", 1)[0]
    plain_name = re.sub(r"[^\w.]+", "-", stem).strip("-._")[:80] or OTHERS
    name, n = plain_name, 2
    while name.casefold() in taken:
        name, n = f"{plain_name}-{n}", n + 1
    taken.add(name.casefold())
    return name


def _write(bundles: Sequence[Exported], out: Path, in_folder: bool) -> list[Path]:
    """Write them where nothing is yet; each file is there whole, or not at all."""
    paths = [out / f"{one.name}.md" for one in bundles] if in_folder else [out]
    there = next((path for path in paths if path.exists() or path.is_symlink()), None)
    if there is not None:
        raise Failure(f"{there} is there already", "name a new file or folder, or remove it", USAGE)
    try:
        for path, one in zip(paths, bundles, strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            half = path.with_name(f".{path.name}.part")
            half.write_text(one.text, encoding="utf-8", newline="")
            half.replace(path)
    except OSError as error:
        raise Failure(f"{out}: {error.strerror}", "name a folder that you may write to, with room", USAGE) from error
    return paths
