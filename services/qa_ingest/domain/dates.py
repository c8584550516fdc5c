"""Dates as people type them into tables: read where they can only mean one day."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time

MONTHS = {name: n for n, names in enumerate((
    ("jan", "january"), ("feb", "february"), ("mar", "march"), ("apr", "april"), ("may",), ("jun", "june"),
    ("jul", "july"), ("aug", "august"), ("sep", "sept", "september"), ("oct", "october"), ("nov", "november"),
    ("dec", "december"),
), start=1) for name in names}  # fmt: skip

_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ]\d{2}:\d{2}(?::\d{2})?)?\b", re.ASCII)
_NUMBERS = re.compile(r"\b(\d{1,2})\s?([./-])\s?(\d{1,2})\s?\2\s?(\d{4}|\d{2})\b", re.ASCII)
_DAY_FIRST = re.compile(r"\b(\d{1,2})(?:st|nd|rd|th)?\s+([A-Za-z]{3,9})\.?,?\s+(\d{4}|\d{2})\b", re.ASCII)
_MONTH_FIRST = re.compile(r"\b([A-Za-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})\b", re.ASCII)


class NotADate(ValueError):
    """A text that names no day, or could name two."""


def stamped(text: str) -> tuple[datetime | None, str | None]:
    """The day in a text like `22/05/2024 MB`, at midnight UTC, and whose stamp it is. Raises `NotADate`."""
    text = " ".join(text.split())
    if not text:
        return None, None
    found = next((match for match in _candidates(text)), None)
    if found is None:
        raise NotADate("it names no day that can be read")
    day, start, end = found
    who = " ".join(f"{text[:start]} {text[end:]}".split()).strip(" ,;:-–—/()")
    return datetime.combine(day, time(), UTC), who[:500] or None


def _candidates(text: str) -> list[tuple[date, int, int]]:
    if match := _ISO.search(text):
        return [(_day(int(match[1]), int(match[2]), int(match[3])), *match.span())]
    if match := _NUMBERS.search(text):
        return [(_numbers(match), *match.span())]
    if match := _DAY_FIRST.search(text):
        return [(_day(_year(match[3]), _month(match[2]), int(match[1])), *match.span())]
    if match := _MONTH_FIRST.search(text):
        return [(_day(int(match[3]), _month(match[1]), int(match[2])), *match.span())]
    return []


def _numbers(match: re.Match[str]) -> date:
    first, second, year = int(match[1]), int(match[3]), _year(match[4])
    if match[2] == ".":  # day.month.year wherever points are written
        return _day(year, second, first)
    if first <= 12 and second <= 12 and first != second:
        raise NotADate("day and month can be either way round; write 2024-05-22")
    return _day(year, second, first) if second <= 12 else _day(year, first, second)


def _year(text: str) -> int:
    return int(text) if len(text) == 4 else 2000 + int(text)


def _month(text: str) -> int:
    try:
        return MONTHS[text.casefold()]
    except KeyError:
        raise NotADate("it names no month that is known") from None


def _day(year: int, month: int, day: int) -> date:
    try:
        return date(year, month, day)
    except ValueError:
        raise NotADate("there is no such day") from None
