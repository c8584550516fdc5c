"""Types of what is typed on the command line: each refuses what no one could mean, and says what would be right."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import click

from libs.contracts.printable import one_line

MAX_TEXT = 100_000
MAX_KEY = 200
LARGEST_INTEGER = 2**63 - 1
_TOUCHPOINT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_S3_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,199}", re.ASCII)
S3_SCHEME = "s3://"
MAX_S3_ADDRESS = 1_200
_KEY = re.compile(rf"[!-~]{{1,{MAX_KEY}}}", re.ASCII)


class Text(click.ParamType[str]):
    """A text that can be sent and kept: whole characters, no NUL, of a bounded length."""

    name = "text"

    def __init__(self, limit: int = MAX_TEXT) -> None:
        self.limit = limit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if "\0" in text:
            self.fail("a text has no NUL in it", param, ctx)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self.fail("it is not UTF-8", param, ctx)
        if len(text) > self.limit:
            self.fail(f"it has {len(text):,} characters; at most {self.limit:,} are taken", param, ctx)
        return text


class Matching(Text):
    """A text of a certain form."""

    def __init__(self, name: str, pattern: re.Pattern[str], told: str) -> None:
        super().__init__()
        self.name = name
        self.pattern = pattern
        self.told = told

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if not self.pattern.fullmatch(text):
            self.fail(self.told, param, ctx)
        return text


class Seconds(click.FloatRange):
    """A finite number in a range."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail("a finite number was expected", param, ctx)
        return number


class Moment(Text):
    """A time with an offset, as ISO 8601."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            moment = datetime.fromisoformat(super().convert(value, param, ctx))
        except ValueError:
            self.fail("it is no ISO 8601 time, e.g. 2025-06-01T12:00:00+00:00", param, ctx)
        if moment.tzinfo is None:
            self.fail("it needs an offset, e.g. +00:00", param, ctx)
        try:
            return moment.astimezone(UTC).isoformat()
        except OverflowError:
            self.fail("it is before the year 1 or after 9999", param, ctx)


class FileSystemPath(click.Path):
    """A path that the operating system can have, `~` resolved.

    `exists` asks for a file or folder that is there. What is in a file, and whether it is a regular one, is looked at
    where it is read (`libs.files`).
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and self.allow_dash and value == "-":
            return Path("-")
        try:
            path = Path(value).expanduser()
            os.fspath(path).encode("utf-8", "surrogateescape")
            path.stat()
            if not self.file_okay and not path.is_dir():
                self.fail(f"{one_line(str(value))[:200]} is a file, or a device; a folder was expected", param, ctx)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            pass
        except RuntimeError:
            self.fail(f"there is no such home folder: {one_line(str(value))[:200]}", param, ctx)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "no path can have this name"
            self.fail(f"{one_line(str(value))[:200]}: {why}", param, ctx)
        return super().convert(path, param, ctx)


class WorkspaceName(Text):
    """A workspace by its id, or by the name that stands for one everywhere; its id comes out."""

    name = "workspace"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from libs.contracts.envelope import EVENT_NAMESPACE

        name = super().convert(value, param, ctx).strip()
        try:
            return str(UUID(name))
        except ValueError:
            return str(uuid5(EVENT_NAMESPACE, f"workspace|{name}"))


@dataclass(frozen=True)
class S3Address:
    """What `s3://bucket/prefix` names: one object, or all that begin so."""

    bucket: str
    prefix: str


class Source(FileSystemPath):
    """A file or folder that is there, or what is in a bucket of an S3 store."""

    name = "source"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not str(value).startswith(S3_SCHEME):
            return super().convert(value, param, ctx)
        text = Text(MAX_S3_ADDRESS).convert(value, param, ctx)
        bucket, _, prefix = text.removeprefix(S3_SCHEME).partition("/")
        if not _S3_BUCKET.fullmatch(bucket):
            self.fail("s3://BUCKET/KEY was expected", param, ctx)
        return S3Address(bucket, prefix)


TEXT = Text()
NAME = Text(200)
USD = Matching("usd", re.compile(r"\d{1,5}(\.\d{1,9})?", re.ASCII), "an amount of USD is written like 0.50")
INTEGER = click.IntRange(1, LARGEST_INTEGER)
TOUCHPOINT_ID = Matching(
    "id", _TOUCHPOINT_ID, "an id has lower-case letters, digits and . _ - only, and no . _ - first"
)
SHA256 = Matching("sha256", _SHA256, "a SHA-256 was expected: 64 digits from 0 to f")
WORKSPACE = WorkspaceName(200)
KEY = Matching("key", _KEY, f"a key has 1 to {MAX_KEY} ASCII letters, digits and signs, and no space")
MOMENT = Moment()
SOURCE = Source(exists=True)
FILE = FileSystemPath(exists=True, dir_okay=False)
FILE_OR_STDIN = FileSystemPath(exists=True, dir_okay=False, allow_dash=True)
NEW_FILE = FileSystemPath(dir_okay=False)
FOLDER = FileSystemPath(file_okay=False)
FOLDER_THAT_IS_THERE = FileSystemPath(exists=True, file_okay=False)
