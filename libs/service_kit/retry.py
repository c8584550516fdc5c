"""Retry with bounded, jittered, growing delays: a small pure object."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Retry:
    """`attempts` tries in all; waits grow from `base_s` by `factor` up to `cap_s`, each times a jitter in 0.5–1."""

    attempts: int = 10
    base_s: float = 0.005
    factor: float = 2.0
    cap_s: float = 0.5

    def delays(self, random: Random) -> Iterator[float]:
        """The waits between the tries, in seconds: one fewer than there are tries."""
        for attempt in range(self.attempts - 1):
            yield min(self.cap_s, self.base_s * self.factor**attempt) * (0.5 + random.random() / 2)
