"""Fault points for drills: places where a process kills itself, with a given chance, as a power cut would.

Off unless `BURNISH_FAULTS` is set, e.g. `BURNISH_FAULTS=commit_ack:0.02,puback_mark:0.02;seed=7`.
"""

from __future__ import annotations

import os
import signal
from random import Random
from typing import Literal

Point = Literal["commit_ack", "puback_mark"]
"""`commit_ack`: the effect is committed, the message not yet acknowledged. `puback_mark`: the bus has the fact, the
outbox row is still there."""


class Faults:
    """The chance of dying at each point."""

    def __init__(self, chances: dict[str, float], seed: int) -> None:
        self._chances = chances
        # Each process draws its own sequence, and a restart must not repeat the draw that killed it.
        self._random = Random(f"{seed}|{os.getpid()}")

    @classmethod
    def parse(cls, text: str) -> Faults:
        """From the variable's text. Raises ValueError naming what is wrong with it."""
        points, _, rest = text.partition(";")
        chances: dict[str, float] = {}
        for item in filter(None, points.split(",")):
            name, _, chance = item.partition(":")
            if name not in ("commit_ack", "puback_mark"):
                raise ValueError(f"BURNISH_FAULTS names the point {name!r}; there are commit_ack and puback_mark")
            chances[name] = float(chance)
        return cls(chances, int(rest.removeprefix("seed=") or 0))

    def point(self, name: Point) -> None:
        """Maybe die here."""
        chance = self._chances.get(name, 0.0)
        if chance and self._random.random() < chance:
            os.kill(os.getpid(), signal.SIGKILL)


_FAULTS = Faults.parse(os.environ.get("BURNISH_FAULTS", ""))


def point(name: Point) -> None:
    """A fault point of this process."""
    _FAULTS.point(name)
