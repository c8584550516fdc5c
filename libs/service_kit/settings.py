"""Settings that every service has, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


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
