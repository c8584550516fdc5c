"""How much disk an installation needs to start, may come to need, and has."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from burnish.data_folder import NEEDS_AGAIN_BYTES, NEEDS_BYTES, has_data
from libs.provisioning.settings import BusSettings

LOG_OF_CHANGES_BYTES = 512 * 1024**2
"""Postgres keeps about so much of its write-ahead log under load: `max_wal_size` of the embedded server."""

SLACK_BYTES = 200_000_000
"""For rows and logs, before anything is said."""


@dataclass(frozen=True)
class Room:
    """Bytes. `needed` to start; `may_grow` beyond what is taken up now, without the rows that are stored."""

    free: int
    needed: int
    may_grow: int

    @property
    def enough(self) -> bool:
        """Whether it can start."""
        return self.free >= self.needed

    @property
    def comfortable(self) -> bool:
        """Whether the bus and the log of changes can take all that they may."""
        return self.free >= self.needed + self.may_grow

    def __str__(self) -> str:
        return (
            f"{gigabytes(self.free)} free; starting needs {gigabytes(self.needed)}, "
            f"the bus and Postgres' log of changes may take {gigabytes(self.may_grow)} more"
        )


def room(data: Path, settings: BusSettings, *, postgres: bool = True, nats: bool = True) -> Room:
    """The room on the disk of `data`, for those of the servers that are embedded."""
    place = next(part for part in (data.absolute(), *data.absolute().parents) if part.exists())
    grown = _held(data / "nats" / "jetstream") if nats else 0
    logged = _held(data / "postgres" / "data" / "pg_wal") if postgres else 0
    may_grow = max(0, settings.total() - grown) * nats + max(0, LOG_OF_CHANGES_BYTES - logged) * postgres
    needed = NEEDS_AGAIN_BYTES if has_data(data) else NEEDS_BYTES
    return Room(shutil.disk_usage(place).free, needed, may_grow + SLACK_BYTES)


def gigabytes(size: int) -> str:
    """`1.5 GB`, or `300 MB` below one."""
    return f"{size / 1e9:.1f} GB" if size >= 1_000_000_000 else f"{size // 1_000_000} MB"


def _held(folder: Path) -> int:
    """What the files below `folder` take up; files come and go while it is counted."""
    return sum(_sizes(folder.rglob("*")))


def _sizes(files: Iterable[Path]) -> Iterable[int]:
    try:
        for file in files:
            try:
                yield file.stat().st_size if file.is_file() else 0
            except OSError:
                continue
    except OSError:  # not ours to read: Postgres' folder belongs to its own user
        return
