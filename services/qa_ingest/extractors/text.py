"""Bytes of a text file become text, with the encoding that it declares or that alone fits.

Control characters, which no text needs and some readers obey, become U+FFFD: seen, counted, harmless.
"""

from __future__ import annotations

import codecs

from charset_normalizer import from_bytes

from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.extractors.base import FileRejected

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SAMPLE = 200_000
_CONTROLS = dict.fromkeys((*range(1, 9), 11, 12, *range(14, 32), 127, 65534, 65535), "�")


def decode(content: bytes) -> str:
    """The text. Raises `FileRejected` where it is none, or where nobody can say which encoding is right."""
    declared = next((name for mark, name in _MARKS if content.startswith(mark)), None)
    try:
        return _text(content.decode(declared or "utf-8"))
    except UnicodeDecodeError:
        pass
    guessed = None if declared or b"\0" in content else from_bytes(content[:_SAMPLE]).best()
    if guessed is None:
        raise FileRejected(
            "not_text", [Problem(1, "not text, or text in an encoding that is not known; save it as UTF-8")]
        )
    try:
        return _text(content.decode(guessed.encoding))
    except UnicodeDecodeError:
        raise FileRejected("not_text", [Problem(1, "text in more than one encoding; save it as UTF-8")]) from None


def _text(text: str) -> str:
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FileRejected("not_text", [Problem(line, "a NUL character, so this is not text")])
    return text.translate(_CONTROLS)
