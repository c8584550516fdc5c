"""Settings of the A/B runner, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from pydantic import Field

from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs, how large a piece of work is, and how many model calls a process has in flight."""

    shard_cases: int = Field(default=250, ge=1, le=5_000)
    model_concurrency: int = Field(default=16, ge=1, le=1_000)
    pool_size: int = Field(default=12, ge=1, description="each shard in work holds one connection")
