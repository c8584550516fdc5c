"""Settings of the MCP server as a process of its own, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Where the gateway is, and where to listen."""

    model_config = SettingsConfigDict(env_prefix="BURNISH_", frozen=True, hide_input_in_errors=True)

    url: str = Field(description="the gateway")
    http_host: str = "127.0.0.1"
    http_port: int = Field(default=0, ge=0, le=65_535)
    log_level: str = "INFO"
