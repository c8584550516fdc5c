"""Reads `touchpoints.yaml`, which a person writes, and turns its friendly form into contracts.

Friendly is: `path` for one of `paths`, `initial_text_file` for `initial_text`, `suite.file` beside the suite's
settings, a scanner's options beside its name, and a repository relative to the file. Every error names the file, the
line and the field, and all that are wrong are told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, Event
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from burnish.json_text import NotJson, require_storable
from burnish.suite_file import MAX_BYTES as MAX_SUITE_BYTES
from libs.contracts.touchpoints import SignalSource, Touchpoint
from libs.contracts.vocabulary import registered
from libs.files import UnreadableFile, read_text, require_regular

MAX_BYTES = 1_000_000
MAX_DEPTH = 20
MOST_MISTAKES = 100
MAX_EVENTS = 50_000
MAX_PROMPT_BYTES = 1_048_576
SOURCE_FIELDS = frozenset(SignalSource.model_fields)
PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null"))

Loc = tuple[str | int, ...]


@dataclass(frozen=True)
class Mistake:
    """One thing that is wrong: where, and what would be right."""

    line: int
    field: str
    message: str


class TouchpointsFileError(Exception):
    """The file cannot be used; `mistakes` are in the order of its lines."""

    def __init__(self, path: Path, mistakes: Sequence[Mistake], *, more: bool = False) -> None:
        self.path = path
        self.mistakes = sorted(mistakes, key=lambda mistake: mistake.line)
        told = [self._told(mistake) for mistake in self.mistakes]
        super().__init__("\n".join([*told, *(["… and more"] if more else [])]))

    def _told(self, mistake: Mistake) -> str:
        where = f"{self.path}, line {mistake.line}" if mistake.line else str(self.path)
        return f"{where}: {mistake.field}: {mistake.message}" if mistake.field else f"{where}: {mistake.message}"


@dataclass(frozen=True)
class TouchpointsFile:
    """What the file says: touchpoints as contracts, and the file of each suite that is to be imported.

    `place("touchpoints[0].storage.paths")` is where that stands: file, line, and the field as it was written.
    """

    path: Path
    touchpoints: tuple[Touchpoint, ...]
    suites: Mapping[str, Path]
    place: Callable[[str], str] = field(repr=False, compare=False)


def read_touchpoints(path: Path) -> TouchpointsFile:
    """Read the file. Raises `TouchpointsFileError` with everything that is wrong."""
    return _Reader(path.absolute()).read()


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: dict[Loc, int] = {(): 1}
        self._mistakes: dict[Mistake, None] = {}  # in the order in which they were found

    def read(self) -> TouchpointsFile:
        entries = self._entries(self._parse(self._text()))
        touchpoints: list[Touchpoint] = []
        suites: dict[str, Path] = {}
        seen: dict[str, int] = {}
        for index, entry in enumerate(entries):
            loc: Loc = ("touchpoints", index)
            translated, suite = self._translated(entry, loc)
            touchpoint = self._validated(translated, loc)
            if touchpoint is None:
                continue
            if touchpoint.id in seen:
                self._wrong((*loc, "id"), f"{touchpoint.id!r} is there already, in line {seen[touchpoint.id]}")
            seen[touchpoint.id] = self._line((*loc, "id"))
            touchpoints.append(touchpoint)
            if suite is not None:
                suites[touchpoint.id] = suite
        self._raise_if_wrong()
        return TouchpointsFile(self._path, tuple(touchpoints), suites, self._place)

    # --- YAML -----------------------------------------------------------------------------------------------

    def _text(self) -> str:
        try:
            return read_text(self._path, MAX_BYTES, encoding="utf-8-sig")
        except UnreadableFile as error:
            raise self._error(error.reason, error.line) from error

    def _parse(self, text: str) -> Any:
        yaml = YAML(typ="safe", pure=True)
        try:
            self._require_plain(yaml.parse(text))
            node = yaml.compose(text)
            if node is None:
                raise self._error("it is empty; it would begin with `touchpoints:`")
            built = self._built(yaml, node, ())
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            raise self._error(f"it is not YAML: {error.problem}", mark.line + 1 if mark else 0) from error
        except ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise self._error("it holds a control character", line) from error
        except RecursionError as error:
            raise self._error("it is nested too deeply") from error
        self._raise_if_wrong()
        return built

    def _require_plain(self, events: Iterable[Event]) -> None:
        """No anchors, bounded in depth and number: looked at while it is scanned, since scanning is what takes long."""
        depth = 0
        for number, event in enumerate(events):
            if isinstance(event, AliasEvent) or getattr(event, "anchor", None) is not None:
                raise self._error("anchors and aliases are not taken; write the value out", _line_of(event))
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise self._error("it is nested too deeply", _line_of(event))
            if number > MAX_EVENTS:
                raise self._error(f"it has more than {MAX_EVENTS:,} values; split it", _line_of(event))

    def _built(self, yaml: YAML, node: Node, loc: Loc) -> Any:
        """The node as a Python value, with the line of every place in it; its mistakes are collected."""
        self._lines[loc] = _line_of(node)
        if node.tag not in PLAIN_TAGS or len(loc) > MAX_DEPTH:
            kind = str(node.tag).rpartition(":")[2]
            deep = len(loc) > MAX_DEPTH
            self._wrong(loc, "it is nested too deeply" if deep else f"the tag {kind} is not taken; a text has quotes")
            return None
        if isinstance(node, MappingNode):
            return self._built_mapping(yaml, node, loc)
        if isinstance(node, SequenceNode):
            return [self._built(yaml, item, (*loc, index)) for index, item in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        try:
            value = yaml.constructor.construct_object(node, deep=True)
        except ValueError:
            self._wrong(loc, "it cannot be read as a number; a text has quotes")
            return None
        try:
            require_storable(value)
        except NotJson as error:
            self._wrong(loc, str(error))
        return value

    def _built_mapping(self, yaml: YAML, node: MappingNode, loc: Loc) -> dict[str, Any]:
        built: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                self._lines[(*loc, "?")] = _line_of(key_node)
                self._wrong((*loc, "?"), "a key is a word")
                continue
            if key in built:
                first = self._line((*loc, key))
                self._lines[(*loc, key)] = _line_of(key_node)
                self._wrong((*loc, key), f"the key is there already, in line {first}")
                continue
            built[key] = self._built(yaml, value_node, (*loc, key))
            self._lines[(*loc, key)] = _line_of(key_node)
        return built

    # --- the friendly form ----------------------------------------------------------------------------------

    def _entries(self, document: Any) -> list[Any]:
        if not isinstance(document, dict):
            raise self._error("it would be a mapping that begins with `touchpoints:`")
        for key in document:
            if key != "touchpoints":
                self._wrong((key,), "is not known here; the one key is `touchpoints`")
        entries = document.get("touchpoints")
        if not isinstance(entries, list) or not entries:
            self._wrong(("touchpoints",), "a list of at least one touchpoint was expected")
        self._raise_if_wrong()
        assert isinstance(entries, list)
        return entries

    def _translated(self, entry: Any, loc: Loc) -> tuple[Any, Path | None]:
        """The entry in the contract's form, and the file of its suite."""
        if not isinstance(entry, dict):
            return entry, None
        contract, suite = dict(entry), None
        if isinstance(entry.get("storage"), dict):
            contract["storage"] = self._storage(dict(entry["storage"]), (*loc, "storage"))
        if isinstance(entry.get("suite"), dict):
            contract["suite"], suite = self._suite(dict(entry["suite"]), (*loc, "suite"))
        if isinstance(entry.get("signals"), list):
            contract["signals"] = [self._source(source) for source in entry["signals"]]
        return contract, suite

    def _storage(self, storage: dict[str, Any], loc: Loc) -> dict[str, Any]:
        names = registered("adapters")
        if isinstance(storage.get("adapter"), str) and storage["adapter"] not in names:
            self._wrong((*loc, "adapter"), f"there is no adapter of this name; there are {' and '.join(names)}")
        if "path" in storage:
            if "paths" in storage:
                self._wrong((*loc, "path"), "give `path` or `paths`, not both")
            storage["paths"] = [storage.pop("path")]
        if "initial_text_file" in storage:
            if "initial_text" in storage:
                self._wrong((*loc, "initial_text_file"), "give `initial_text_file` or `initial_text`, not both")
            name = storage.pop("initial_text_file")
            storage["initial_text"] = self._text_of(name, (*loc, "initial_text_file"))
        if isinstance(storage.get("repository"), str):
            storage["repository"] = self._folder(storage["repository"], (*loc, "repository"))
        return storage

    def _suite(self, suite: dict[str, Any], loc: Loc) -> tuple[dict[str, Any], Path | None]:
        if "file" not in suite:
            return suite, None
        name = suite.pop("file")
        if not isinstance(name, str) or not name:
            self._wrong((*loc, "file"), "the name of a .jsonl or .csv file was expected")
            return suite, None
        path = self._beside(name, (*loc, "file"))
        if path is None:
            return suite, None
        try:
            require_regular(path, MAX_SUITE_BYTES)
        except UnreadableFile as error:
            self._wrong((*loc, "file"), f"there is no file {path}" if error.absent else str(error))
        return suite, path

    @staticmethod
    def _source(source: Any) -> Any:
        """Options may stand beside the scanner's name, or under `options`, or both."""
        if not isinstance(source, dict):
            return source
        beside = {key: value for key, value in source.items() if key not in SOURCE_FIELDS}
        known = {key: value for key, value in source.items() if key in SOURCE_FIELDS}
        options = known.get("options", {})
        if beside and isinstance(options, dict):
            known["options"] = {**options, **beside}
        return known

    def _text_of(self, name: Any, loc: Loc) -> str | None:
        if not isinstance(name, str) or not name:
            self._wrong(loc, "the name of a text file was expected")
            return None
        path = self._beside(name, loc)
        if path is None:
            return None
        try:
            return read_text(path, MAX_PROMPT_BYTES)
        except UnreadableFile as error:
            self._wrong(loc, str(error))
            return None

    def _beside(self, name: str, loc: Loc) -> Path | None:
        """A path as the file means it: relative to the file. None, and a mistake, where there can be none."""
        try:
            return self._path.parent / Path(name).expanduser()
        except RuntimeError:
            self._wrong(loc, "there is no such home folder; write the path out")
            return None

    def _folder(self, name: str, loc: Loc) -> str | None:
        path = self._beside(name, loc)
        try:
            return str(path.resolve()) if path is not None else None
        except (OSError, RuntimeError, ValueError):
            self._wrong(
                loc, "no folder can be found by this name: it is too long, leads in a circle, or has a NUL in it"
            )
            return None

    # --- contracts ------------------------------------------------------------------------------------------

    def _validated(self, translated: Any, loc: Loc) -> Touchpoint | None:
        if not isinstance(translated, dict):
            self._wrong(loc, "a touchpoint is a mapping with at least `id`, `scope` and `storage`")
            return None
        try:
            return Touchpoint.model_validate(translated)
        except ValidationError as error:
            for one in error.errors(include_url=False, include_input=False):
                self._wrong((*loc, *one["loc"]), _message(one["type"], one["msg"]))
            return None

    # --- mistakes -------------------------------------------------------------------------------------------

    def _wrong(self, loc: Loc, message: str) -> None:
        if len(self._mistakes) >= MOST_MISTAKES:
            raise self._wholly_wrong()
        self._mistakes[Mistake(self._line(loc), _field(self._friendly(loc)), message)] = None

    def _place(self, name: str) -> str:
        steps = re.findall(r"[^.\[\]]+", name)
        loc = tuple(int(step) if step.isdecimal() else step for step in steps)
        return f"{self._path}, line {self._line(loc)}: {_field(self._friendly(loc))}"

    def _friendly(self, loc: Loc) -> Loc:
        """The field's name as the person wrote it."""
        text = ("initial_text", "initial_text_file")
        for at, (contract, written) in ((2, ("paths", "path")), (1, ("paths", "path")), (1, text)):
            cut = len(loc) - at + 1
            if cut > 0 and loc[cut - 1] == contract and (*loc[: cut - 1], written) in self._lines:
                return (*loc[: cut - 1], written)
        return loc

    def _line(self, loc: Loc) -> int:
        """The line of the place, or of the nearest one around it that is there."""
        loc = self._friendly(loc)
        return next(self._lines[loc[:cut]] for cut in range(len(loc), -1, -1) if loc[:cut] in self._lines)

    def _raise_if_wrong(self) -> None:
        if self._mistakes:
            raise TouchpointsFileError(self._path, list(self._mistakes))

    def _wholly_wrong(self) -> TouchpointsFileError:
        return TouchpointsFileError(self._path, list(self._mistakes), more=True)

    def _error(self, message: str, line: int = 0) -> TouchpointsFileError:
        return TouchpointsFileError(self._path, [Mistake(line, "", message)])


def _line_of(marked: Any) -> int:
    return int(marked.start_mark.line) + 1


def _field(loc: Loc) -> str:
    return "".join(_steps(loc))


def _steps(loc: Loc) -> Iterator[str]:
    for position, step in enumerate(loc):
        if isinstance(step, int):
            yield f"[{step}]"
        else:
            yield f".{step}" if position else step


def _message(kind: str, message: str) -> str:
    """Pydantic's words, or plainer ones; never the value, which may be long."""
    plain = {"missing": "is missing", "extra_forbidden": "is not known here; is it misspelt?"}
    return plain.get(kind, message.removeprefix("Value error, "))
