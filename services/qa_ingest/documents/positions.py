"""XML whose elements know the bytes that they came from, so that a change touches those bytes and no others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from xml.etree.ElementTree import Element
from xml.parsers import expat

from services.qa_ingest.documents.package import Refused

MAX_ELEMENTS = 1_500_000
MAX_DEPTH = 300
_TAG = re.compile(rb"""<[^\s/>]+(?:\s+[^\s=>]+\s*=\s*(?:"[^"]*"|'[^']*'))*\s*/?>""")
_NAME = re.compile(rb"<([^\s/>]+)")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Span:
    """Where an element stands: `start` to `end`, its content from `inner` to `close`. `<a/>` has none: both are 0."""

    start: int
    end: int
    inner: int = 0
    close: int = 0

    @property
    def is_empty_tag(self) -> bool:
        """Written as `<a/>`."""
        return not self.inner


@dataclass(frozen=True, slots=True)
class Edit:
    """Bytes `start` to `end` become `by`; with `start == end` they are put in."""

    start: int
    end: int
    by: bytes


@dataclass(slots=True)
class Located:
    """A part as a tree, with the bytes it is made of."""

    content: bytes
    root: Element
    _ends: Mapping[Element, tuple[int, int]] = field(repr=False)

    def span(self, element: Element) -> Span:
        """The bytes of an element of this tree."""
        start, last = self._ends[element]
        tag = _TAG.match(self.content, start)
        if tag is None:
            raise Refused("bad_xml", "a tag that cannot be told apart from what follows it")
        if tag[0].endswith(b"/>"):
            return Span(start, tag.end())
        return Span(start, self.content.index(b">", last) + 1, tag.end(), last)

    def prefix(self, element: Element) -> bytes:
        """The namespace prefix that the file has for this element, with its colon; empty for none."""
        named = _NAME.match(self.content, self._ends[element][0])
        name = named[1] if named else b""
        return name[: name.index(b":") + 1] if b":" in name else b""

    def bytes_of(self, element: Element) -> bytes:
        """The element as the file has it."""
        span = self.span(element)
        return self.content[span.start : span.end]

    def put_in(self, element: Element, by: bytes, *, at_end: bool = True) -> Edit:
        """Bytes at the end (or the beginning) of an element's content, also where it is written as `<a/>`."""
        span = self.span(element)
        if not span.is_empty_tag:
            at = span.close if at_end else span.inner
            return Edit(at, at, by)
        tag = self.content[span.start : span.end]
        named = _NAME.match(tag)
        assert named is not None
        return Edit(span.end - 2, span.end, b">" + by + b"</" + named[1] + b">")


def located(content: bytes, name: str) -> Located:
    """Parse a part. Raises `Refused` for document types, for what is no XML, and for other encodings than UTF-8."""
    tree = _Tree(name)
    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = lambda tag, attributes: tree.start(tag, attributes, parser.CurrentByteIndex)
    parser.EndElementHandler = lambda tag: tree.end(parser.CurrentByteIndex)
    parser.CharacterDataHandler = tree.text
    parser.StartDoctypeDeclHandler = lambda *_: tree.refuse_type()
    parser.XmlDeclHandler = lambda _version, encoding, _alone: tree.encoding(encoding)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        tree.encoding("UTF-16")
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise Refused("bad_xml", f"{name} is no well-formed XML") from error
    assert tree.root is not None  # well-formed XML has one
    return Located(content, tree.root, tree.ends)


def changed(content: bytes, edits: Iterable[Edit]) -> bytes:
    """The content with these edits, which do not overlap; those at one place keep their order."""
    parts: list[bytes] = []
    at = 0
    for edit in sorted(edits, key=lambda each: (each.start, each.end)):
        if edit.start < at:
            raise ValueError("two edits overlap")
        parts += (content[at : edit.start], edit.by)
        at = edit.end
    return b"".join([*parts, content[at:]])


def escaped(text: str) -> bytes:
    """Text as XML content: what XML cannot hold is left out."""
    clean = _NOT_XML.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return clean.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").encode()


class _Tree:
    def __init__(self, name: str) -> None:
        self.root: Element | None = None
        self.ends: dict[Element, tuple[int, int]] = {}
        self._name = name
        self._open: list[tuple[Element, int]] = []

    def start(self, tag: str, attributes: Mapping[str, str], at: int) -> None:
        if len(self.ends) + len(self._open) >= MAX_ELEMENTS:
            raise Refused("too_large", f"{self._name} has more than {MAX_ELEMENTS:,} elements")
        if len(self._open) >= MAX_DEPTH:
            raise Refused("too_deep", f"{self._name} is nested deeper than any document")
        element = Element(_braced(tag), {_braced(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1][0].append(element)
        else:
            self.root = element
        self._open.append((element, at))

    def end(self, at: int) -> None:
        element, start = self._open.pop()
        self.ends[element] = (start, at)

    def text(self, text: str) -> None:
        element = self._open[-1][0]
        if len(element):
            element[-1].tail = (element[-1].tail or "") + text
        else:
            element.text = (element.text or "") + text

    def refuse_type(self) -> None:
        raise Refused("document_type", f"{self._name} has a document type or entities, which no office program writes")

    def encoding(self, encoding: str | None) -> None:
        if (encoding or "utf-8").casefold().replace("_", "-") not in ("utf-8", "utf8", "us-ascii", "ascii"):
            raise Refused("bad_encoding", f"{self._name} is not in UTF-8; save the form anew")


def _braced(name: str) -> str:
    return "{" + name if "}" in name else name
