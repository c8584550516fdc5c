"""Settings that every service has, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from libs.contracts.topology import DAY_S, STREAMS

LONGEST_KEPT = max(STREAMS, key=lambda stream: stream.max_age_s)


class KitSettings(BaseSettings):
    """Where the servers are and how patient the kit is. A service subclasses this with what it needs."""

    model_config = SettingsConfigDict(env_prefix="BURNISH_", extra="ignore", frozen=True)

    database_url: SecretStr
    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: SecretStr = SecretStr("")
    js_prefix: str = Field(default="bus", description="JetStream API prefix of a service account")
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, description="0: any free port")
    pool_size: int = Field(default=8, ge=4, description="a run may hold one connection, need another, beside the relay")
    graceful_timeout_s: float = Field(default=15.0, ge=0.0)
    redelivery_delays_s: tuple[float, ...] = (1.0, 5.0, 15.0, 60.0)
    inbox: bool = Field(default=True, description="off only as the control of a fault drill")
    log_level: str = "INFO"
    inbox_kept_days: float = Field(default=100.0, le=36_500, description="longer than any stream keeps a message")
    inbox_pruned_every_s: float = Field(default=600.0, gt=0)

    @field_validator("inbox_kept_days")
    @classmethod
    def _outlasts_the_streams(cls, days: float) -> float:
        longest = LONGEST_KEPT.max_age_s / DAY_S
        if days <= longest:
            raise ValueError(
                f"must be more than {longest:g}, the days for which the stream {LONGEST_KEPT.name} keeps a message: "
                "an event that is delivered again after its row is gone would take effect again"
            )
        return days

    @property
    def inbox_kept(self) -> timedelta:
        """How long the inbox remembers an event."""
        return timedelta(days=self.inbox_kept_days)
