"""What of a text may reach a terminal, a log or an error: nothing that steers it, turns its direction or hides.

Pure. What is taken out is shown as its number (`\\x1b`, `\\u202e`), so that whoever reads sees that it was there.
"""

from __future__ import annotations

import re
import unicodedata

# Printable to Python, and drawn as nothing: joiners, fillers and selectors, in which a text can be hidden.
_INVISIBLE = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff"
_NOT_ASCII_LETTERS = re.compile(r"[^\x20-\x7e]")
_HIDDEN = re.compile(f"[{_INVISIBLE}]")
_ASCII_OR_STRUCTURE = "\n\t"


def one_line(text: str) -> str:
    """A text as one line, for a cell or a name: controls and breaks become spaces, what hides its number."""
    return _NOT_ASCII_LETTERS.sub(_in_one_line, text)


def lines(text: str) -> str:
    """A text with its lines and tabs: everything else that cannot be seen becomes its number."""
    return _NOT_ASCII_LETTERS.sub(_in_lines, text.replace("\r\n", "\n"))


def in_json(document: str) -> str:
    """A JSON document that says the same, with everything in it escaped that cannot be seen."""
    return _NOT_ASCII_LETTERS.sub(_in_json, document)


def is_visible(character: str) -> bool:
    """Whether a character can be seen, or is a space of some width."""
    if _HIDDEN.match(character):
        return False
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _in_one_line(found: re.Match[str]) -> str:
    character = found[0]
    category = unicodedata.category(character)
    if category in ("Cc", "Zl", "Zp", "Zs"):
        return " "
    return character if is_visible(character) else _number(character)


def _in_lines(found: re.Match[str]) -> str:
    character = found[0]
    return character if character in _ASCII_OR_STRUCTURE or is_visible(character) else _number(character)


def _in_json(found: re.Match[str]) -> str:
    character = found[0]
    if character in _ASCII_OR_STRUCTURE or is_visible(character):
        return character
    return "".join(f"\\u{unit:04x}" for unit in _units(character))


def _units(character: str) -> list[int]:
    """The UTF-16 units in which JSON counts."""
    raw = character.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(raw[at : at + 2], "big") for at in range(0, len(raw), 2)]


def _number(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
