"""The one printer: everything that the command line writes goes through here.

Answers go to stdout, remarks and errors to stderr. What others wrote (texts, names, errors of services) is cleaned:
nothing of it steers a terminal, turns its direction or hides, and JSON stays JSON. A secret that was given to
`keep_secret` is masked. Only `exact` writes a text byte for byte, and only where no terminal reads it.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from libs.contracts import printable

if TYPE_CHECKING:
    from rich.console import Console

MASK = "***"
LONGEST_LINE, MOST_LINES = 2_000, 2_000
SHORTEST_SECRET = 8
DIFF_COLOURS = {"+": "green", "-": "red", "@": "cyan"}
_PASSWORD_IN_URL = re.compile(r"(://[^\s/@:]*:)[^\s@]*@")
_secrets: set[str] = set()


class Unwritable(Exception):
    """An answer cannot be written: `reason` says why, and is empty when nobody reads it any more."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# --- answers: stdout ------------------------------------------------------------------------------------------


def answer(text: str = "", colour: str | None = None) -> None:
    """Lines for people."""
    with _writing() as stream:
        stream.write(_styled(_masked(printable.lines(text)), colour, stream) + "\n")


def exact(text: str) -> None:
    """A text byte for byte, nothing added; cleaned, and with a last line end, where a terminal reads it."""
    with _writing() as stream:
        if _is_terminal(stream):
            stream.write(printable.lines(text) + "\n" * (not text.endswith("\n")))
        else:
            stream.flush()
            stream.buffer.write(text.encode("utf-8"))


def print_json(document: Any) -> None:
    """One document."""
    with _writing() as stream:
        text = _json(document, ascii_only=not (stream.encoding or "").lower().startswith("utf"))
        stream.write(_masked(printable.in_json(text)) + "\n")


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str = "nothing yet") -> None:
    """A table: drawn on a terminal, aligned columns elsewhere. An empty one says so on stderr."""
    if not rows:
        remark(empty)
        return
    cells = [[plain(cell) for cell in row] for row in rows]
    if _is_terminal(sys.stdout):
        with _writing():
            _print_rich(headings, cells)
        return
    widths = [max(len(row[n]) for row in [list(headings), *cells]) for n in range(len(headings))]
    for row in [list(headings), *cells]:
        answer("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_fields(fields: Sequence[tuple[str, object]]) -> None:
    """`name  value` lines; what is None is left out."""
    shown = [(plain(name), plain(value)) for name, value in fields if value is not None]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        answer(f"{name.ljust(width)}  {value}")


def print_diff(diff: str) -> None:
    """A unified diff for people, coloured on a terminal."""
    for line in diff.splitlines():
        answer(line, DIFF_COLOURS.get(line[:1]))


# --- remarks and errors: stderr -------------------------------------------------------------------------------


def remark(text: str) -> None:
    """Progress and remarks, so that stdout is only ever the answer."""
    _on_stderr(_clean_remark(text) + "\n")


def error(message: str, hint: str = "") -> None:
    """`error: …`, then what would be right."""
    told = _clean_remark(message) + ("\n  " + _clean_remark(hint) if hint else "")
    stream = sys.stderr
    _on_stderr(_styled("error: ", "red", stream) + told + "\n")


def confirmed(question: str) -> bool:
    """Ask on stderr, read the answer from stdin. Only yes is yes."""
    _on_stderr(f"{_clean_remark(question)} [y/N]: ")
    return (sys.stdin.readline() if sys.stdin else "").strip().lower() in ("y", "yes")


def can_ask() -> bool:
    """Whether somebody sits at stdin."""
    return _is_terminal(sys.stdin)


# --- both -----------------------------------------------------------------------------------------------------


def plain(value: object) -> str:
    """A value as one clean line, as it stands in a cell."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return printable.one_line(str(value))


def console(*, stderr: bool = False) -> Console:
    """For bars, panels and tables: takes no markup from texts, and lets nothing through that steers."""
    from burnish.console import CleanConsole

    return CleanConsole(stderr=stderr, markup=False, emoji=False, highlight=False)


def keep_secret(value: str) -> None:
    """From now on this is masked in everything that is cleaned."""
    if len(value) >= SHORTEST_SECRET:
        _secrets.add(value)


def prepare() -> None:
    """Let every stream take every text, whatever the locale; what it cannot show is written as its number."""
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    for name, value in os.environ.items():
        if name.startswith("BURNISH_") and ("PASSWORD" in name or "TOKEN" in name):
            keep_secret(value)


def finish() -> None:
    """Write what is still in a buffer. Raises `Unwritable`."""
    if sys.stdout is not None:
        with _writing():
            pass


def abandon() -> None:
    """Nobody reads stdout: what is left in its buffer goes nowhere, and the interpreter does not stumble over it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(nowhere, stream.fileno())
        except AttributeError:  # it is closed
            pass
    os.close(nowhere)


# --- within ---------------------------------------------------------------------------------------------------


@contextmanager
def _writing() -> Iterator[TextIO]:
    """Stdout, flushed at the end. Raises `Unwritable`."""
    stream = sys.stdout
    if stream is None:
        raise Unwritable("stdout is closed")
    try:
        yield stream
        stream.flush()
    except BrokenPipeError as error:
        raise Unwritable("") from error
    except OSError as error:
        raise Unwritable(f"stdout cannot be written: {error.strerror or type(error).__name__}") from error


def _on_stderr(text: str) -> None:
    """Nobody may be there to read a remark; that ends no verb."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError, AttributeError):
        pass


def _clean_remark(text: str) -> str:
    return _bounded(_masked(_PASSWORD_IN_URL.sub(rf"\1{MASK}@", printable.lines(text))))


def _bounded(text: str) -> str:
    """Enough of each line to know it by, and of the lines."""
    shown = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …" for line in text.split("\n")]
    return "\n".join(shown if len(shown) <= MOST_LINES else [*shown[:MOST_LINES], "…"])


def _masked(text: str) -> str:
    for secret in _secrets:
        text = text.replace(secret, MASK)
    return text


def _styled(text: str, colour: str | None, stream: TextIO | None) -> str:
    if colour is None or not _is_terminal(stream) or os.environ.get("NO_COLOR"):
        return text
    return click.style(text, fg=colour, bold=colour == "red" and text == "error: ")


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # it is closed
        return False


def _json(document: Any, *, ascii_only: bool) -> str:
    try:
        return json.dumps(document, indent=2, ensure_ascii=ascii_only, default=str, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), indent=2, ensure_ascii=ascii_only, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no infinity, and no number that is none: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _print_rich(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in cells:
        table.add_row(*(Text(_masked(cell)) for cell in row))
    console().print(table)
