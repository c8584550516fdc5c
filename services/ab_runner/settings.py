"""Settings of the A/B runner, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field

from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs, how large a piece of work is, and how many model calls a process has in flight."""

    shard_cases: int = Field(default=250, ge=1, le=5_000)
    model_concurrency: int = Field(default=16, ge=1, le=1_000)
    runs_watched_every_s: float = Field(default=5.0, gt=0)
    run_stalled_after_s: float = Field(default=1_800.0, gt=0, description="without any progress, not from its start")
    pool_size: int = Field(default=12, ge=1, description="each shard in work holds one connection")

    @property
    def run_patience(self) -> timedelta:
        """How long a run may go without any progress."""
        return timedelta(seconds=self.run_stalled_after_s)
