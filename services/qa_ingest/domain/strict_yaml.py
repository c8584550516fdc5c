"""YAML as people write metadata: one mapping, texts as they stand, and nothing that could surprise.

Every scalar stays text (YAML's failsafe schema), so that `no`, `on` and `2024-01-01` are what was typed; the field that
a value is for decides what it means. Anchors, aliases, tags, merge keys, directives and duplicate keys are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

MAX_CHARACTERS = 64 * 1024
MAX_DEPTH = 8
MAX_NODES = 5_000
NULLS = frozenset({"", "~", "null", "Null", "NULL"})
FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
"""Characters that no text may have, however they were written: YAML's escapes can spell every one of them."""


class NotStrictYaml(ValueError):
    """Why a text is no strict mapping; `line`, and `first` where two lines disagree, count from 0 within it."""

    def __init__(self, line: int, message: str, first: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.message = message
        self.first = first


@dataclass(frozen=True, slots=True)
class Scalar:
    """A text. `quoted` where it was quoted or a block; `cut` where ` #` began a comment behind it."""

    text: str
    line: int
    quoted: bool = False
    cut: bool = False

    @property
    def is_null(self) -> bool:
        """Nothing was written, or `null` or `~` without quotes."""
        return not self.quoted and self.text in NULLS


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list of nodes."""

    items: tuple[Node, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Mapping:
    """Keys in the order written; a key's own line is that of its `Scalar`."""

    items: tuple[tuple[Scalar, Node], ...]
    line: int

    def get(self, key: str) -> Node | None:
        """The value of `key`, if it is there."""
        return next((value for name, value in self.items if name.text == key), None)


Node = Scalar | Sequence | Mapping


@dataclass(slots=True)
class _Open:
    """A collection whose end has not come yet."""

    line: int
    mapping: bool
    nodes: list[Node] = field(default_factory=list)
    keys: dict[str, int] = field(default_factory=dict)


def read_mapping(text: str) -> Mapping | None:
    """The one mapping that `text` is, or None where it holds nothing but blanks and comments.

    Raises `NotStrictYaml` for everything else.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotStrictYaml(0, f"{len(text):,} characters of metadata; the most is {MAX_CHARACTERS:,}")
    try:
        root = _build(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise NotStrictYaml(mark.line if mark else 0, error.problem or error.context or "not YAML") from None
    except (YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, NotStrictYaml):
            raise
        raise NotStrictYaml(0, f"not YAML: {type(error).__name__}") from None
    if root is None or isinstance(root, Mapping):
        return root
    raise NotStrictYaml(root.line, "not a mapping of `key: value` lines")


def plain(node: Node) -> Any:
    """The node as JSON would have it: texts, lists, mappings, null."""
    if isinstance(node, Scalar):
        return None if node.is_null else node.text
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return {key.text: plain(value) for key, value in node.items}


def _build(text: str) -> Node | None:
    lines = text.split("\n")
    opened: list[_Open] = []
    root: Node | None = None
    documents = nodes = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        line = event.start_mark.line if event.start_mark else 0
        if isinstance(event, DocumentStartEvent):
            documents += 1
            if documents > 1 or event.explicit:
                raise NotStrictYaml(line, "more than one YAML document")
            if event.version or event.tags:
                raise NotStrictYaml(line, "a YAML directive")
            continue
        if isinstance(event, AliasEvent):
            raise NotStrictYaml(line, "an alias (`*name`); write the value out")
        node: Node | None = None
        if isinstance(event, ScalarEvent | SequenceStartEvent | MappingStartEvent):
            _refuse_extras(event, line)
            nodes += 1
            if nodes > MAX_NODES:
                raise NotStrictYaml(line, f"more than {MAX_NODES:,} values")
        if isinstance(event, ScalarEvent):
            if found := FORBIDDEN.search(event.value):
                raise NotStrictYaml(line, f"a control character (U+{ord(found[0]):04X}), written as an escape")
            node = Scalar(event.value, line, quoted=event.style is not None, cut=_is_cut(event, lines))
        elif isinstance(event, SequenceStartEvent | MappingStartEvent):
            if len(opened) >= MAX_DEPTH:
                raise NotStrictYaml(line, f"nested deeper than {MAX_DEPTH}")
            opened.append(_Open(line, isinstance(event, MappingStartEvent)))
            continue
        elif isinstance(event, SequenceEndEvent | MappingEndEvent):
            node = _close(opened.pop())
        if node is None:
            continue
        if not opened:
            root = node
        else:
            _add(opened[-1], node)
    if isinstance(root, Scalar) and root.text == "" and not root.quoted:
        return None
    return root


def _refuse_extras(event: ScalarEvent | SequenceStartEvent | MappingStartEvent, line: int) -> None:
    if event.anchor is not None:
        raise NotStrictYaml(line, "an anchor (`&name`); write the value where it is needed")
    if event.ctag is not None and str(event.ctag) not in ("", "None"):
        raise NotStrictYaml(line, "a tag (`!name`)")


def _add(parent: _Open, node: Node) -> None:
    if parent.mapping and len(parent.nodes) % 2 == 0:
        if not isinstance(node, Scalar):
            raise NotStrictYaml(node.line, "a key that is not a text")
        if node.text == "<<" and not node.quoted:
            raise NotStrictYaml(node.line, "a merge key (`<<`)")
        if node.text in parent.keys:
            raise NotStrictYaml(node.line, f"`{node.text}` is there twice", first=parent.keys[node.text])
        parent.keys[node.text] = node.line
    parent.nodes.append(node)


def _close(done: _Open) -> Node:
    if not done.mapping:
        return Sequence(tuple(done.nodes), done.line)
    pairs = zip(done.nodes[::2], done.nodes[1::2], strict=True)
    return Mapping(tuple((key, value) for key, value in pairs if isinstance(key, Scalar)), done.line)


def _is_cut(event: ScalarEvent, lines: list[str]) -> bool:
    """A comment behind a plain text on its last line: `What is C # exactly?`."""
    if event.style is not None or event.end_mark is None or event.value == "":
        return False
    line, column = event.end_mark.line, event.end_mark.column
    return line < len(lines) and str(lines[line])[column:].lstrip().startswith("#")
