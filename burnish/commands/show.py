"""Answers on stdout: one JSON document, or text for people (a table with colours only where somebody looks)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import click


def print_json(document: Any) -> None:
    """One document on stdout."""
    click.echo(json.dumps(document, indent=2, ensure_ascii=False, default=str))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing yet") -> None:
    """A table on stdout: drawn on a terminal, aligned columns elsewhere. An empty one says so on stderr."""
    if not rows:
        click.echo(empty, err=True)
        return
    cells = [[plain(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(headings, cells)
        return
    widths = [max(len(row[n]) for row in [list(headings), *cells]) for n in range(len(headings))]
    for row in [list(headings), *cells]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """`name  value` lines on stdout; what is None is left out."""
    shown = [(name, plain(value)) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        click.echo(f"{name.ljust(width)}  {value}")


def plain(value: object) -> str:
    """One line without control characters: what others wrote must not steer a terminal."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "".join(character if character.isprintable() else " " for character in str(value))


def printable(text: str) -> str:
    """Several lines without control characters."""
    return "\n".join(plain(line) for line in text.splitlines())


def when(at: str | datetime | None) -> str:
    """A time in the reader's zone, to the second."""
    if at is None:
        return "–"
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def short(identity: object) -> str:
    """The first eight characters of an id or hash."""
    return str(identity)[:8] if identity else "–"


def _print_rich(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


def print_diff(diff: str) -> None:
    """A unified diff, coloured on a terminal."""
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for line in diff.splitlines():
        click.secho(plain(line), fg=colours.get(line[:1]))
