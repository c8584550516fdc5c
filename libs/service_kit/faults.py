"""Fault points for drills: places where a process kills itself, with a given chance, as a power cut would.

Off unless `BURNISH_FAULTS` is set, e.g. `BURNISH_FAULTS=commit_ack:0.02,puback_mark:0.02;seed=7;while=FILE`.
"""

from __future__ import annotations

import os
import signal
from functools import cache
from random import Random
from typing import Literal, get_args

Point = Literal[
    "commit_ack",
    "puback_mark",
    "asked_record",
    "push_commit",
    "lock_read",
    "read_write",
    "write_commit",
    "commit_unlock",
]
"""Of every service. `commit_ack`: the effect is committed, the message not yet acknowledged. `puback_mark`: the bus has
the fact, the outbox row is still there. `asked_record`: the owner has changed what was asked, the gateway has no record
of it. `push_commit`: the agent engine has a pack, the save is not yet committed.

Of an object of a bucket. `lock_read`: it is locked and not read. `read_write`: it is read, and nothing is written.
`write_commit`: all is written, nothing committed. `commit_unlock`: all is committed, and whoever told does not know."""


class Faults:
    """The chance of dying at each point, as long as the file `while_there` exists (always, without one)."""

    def __init__(self, chances: dict[str, float], seed: int = 0, while_there: str | None = None) -> None:
        self._chances = chances
        self._while_there = while_there
        # Each process draws its own sequence, and a restart must not repeat the draw that killed it.
        self._random = Random(f"{seed}|{os.getpid()}")

    @classmethod
    def parse(cls, text: str) -> Faults:
        """From the variable's text. Raises ValueError naming what is wrong with it."""
        points, *options = text.split(";")
        chances = dict(_chance(item) for item in filter(None, points.split(",")))
        told = dict(option.split("=", 1) for option in options)
        return cls(chances, int(told.get("seed", 0)), told.get("while"))

    def point(self, name: Point) -> None:
        chance = self._chances.get(name, 0.0)
        if not chance or (self._while_there and not os.path.exists(self._while_there)):
            return
        if self._random.random() < chance:
            os.kill(os.getpid(), signal.SIGKILL)


def _chance(item: str) -> tuple[str, float]:
    name, _, chance = item.partition(":")
    if name not in get_args(Point):
        raise ValueError(f"BURNISH_FAULTS names the point {name!r}; there are {', '.join(get_args(Point))}")
    return name, float(chance)


@cache
def _faults() -> Faults:
    # Read at the first use: a service may be the fork of a process that has imported this.
    return Faults.parse(os.environ.get("BURNISH_FAULTS", ""))


def point(name: Point) -> None:
    """A fault point of this process."""
    _faults().point(name)
