"""One line of the doctor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """What one check found: `todo` says what to do when it is not `ok`."""

    check: str
    level: Level
    message: str
    todo: str = ""
