"""When a call is tried again, and how long to wait. Pure; the random number is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from burnish_sdk.errors import BurnishError, Busy, Problem, Unavailable, Unreachable


@dataclass(frozen=True)
class Retry:
    """`attempts` counts the first try. Waits double from `base_s` to `cap_s`, each shortened by chance down to half.

    A Retry-After is waited for in full; one beyond `longest_wait_s` is left to the caller.
    """

    attempts: int = 4
    base_s: float = 0.1
    cap_s: float = 2.0
    longest_wait_s: float = 30.0

    def wait(self, error: BurnishError, attempt: int, repeatable: bool, sent: bool, chance: float) -> float | None:
        """Seconds until the next try; None when there is none. `attempt` counts from 1, `chance` is in [0, 1).

        A call that may have had its effect is sent again only where doing it twice is doing it once.
        """
        if attempt >= self.attempts or not isinstance(error, Unreachable | Unavailable | Busy):
            return None
        if sent and not repeatable and not isinstance(error, Busy):
            return None
        usual = min(self.cap_s, self.base_s * 2.0 ** (attempt - 1)) * (1 - chance / 2)
        asked = error.retry_after if isinstance(error, Problem) else None
        if asked is None:
            return usual
        return asked + usual * chance if asked <= self.longest_wait_s else None


NEVER = Retry(attempts=1)
