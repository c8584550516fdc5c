"""Settings of the A/B runner, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from pydantic import Field

from libs.llm import Budget
from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs, how large a piece of work is, and what runs may ask of models. Days are UTC days."""

    shard_cases: int = Field(default=250, ge=1, le=5_000)
    model_concurrency: int = Field(default=16, ge=1, le=1_000)
    runs_watched_every_s: float = Field(default=5.0, gt=0)
    run_stalled_after_s: float = Field(default=1_800.0, gt=0, description="without any progress, not from its start")
    pool_size: int = Field(default=12, ge=1, description="each shard in work holds one connection")
    ab_usd_per_day: Decimal = Field(default=Decimal(20), ge=0)
    ab_usd_per_touchpoint_day: Decimal = Field(default=Decimal(10), ge=0)
    ab_call_timeout_s: float = Field(default=60.0, gt=0)

    @property
    def run_patience(self) -> timedelta:
        """How long a run may go without any progress."""
        return timedelta(seconds=self.run_stalled_after_s)

    @property
    def budget(self) -> Budget:
        """The limits of runs; how many calls are in flight is bounded a process, by `model_concurrency`."""
        return Budget(
            self.ab_usd_per_day,
            self.ab_usd_per_touchpoint_day,
            at_once=None,
            in_flight_s=10 * self.ab_call_timeout_s,  # one that was begun waits for its turn, then has its time
        )
