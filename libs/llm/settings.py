"""Settings of model providers, from environment variables with the prefix `BURNISH_`. Keys are never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from libs.files import UnreadableFile, read_text
from libs.llm.base import ModelError

ANTHROPIC_URL = "https://api.anthropic.com"
OPENAI_URL = "https://api.openai.com/v1"
MAX_KEY_BYTES = 16_384

Seconds = Annotated[float, Field(ge=0, le=3_600, allow_inf_nan=False)]


class ProviderSettings(BaseSettings):
    """Where models are, with which key, at which prices. Read when a model is opened, so that a service without
    models of a provider needs none of its settings."""

    model_config = SettingsConfigDict(env_prefix="BURNISH_", extra="ignore", frozen=True)

    anthropic_api_key: SecretStr | None = None
    anthropic_api_key_file: Path | None = None
    anthropic_base_url: str = ANTHROPIC_URL
    openai_api_key: SecretStr | None = None
    openai_api_key_file: Path | None = None
    openai_base_url: str = OPENAI_URL
    model_prices: Path | None = Field(default=None, description="a price table of your own, before ours")
    model_tiers: dict[str, str] = Field(default_factory=dict, description="tier → provider/name")
    model_retries: int = Field(default=3, ge=0, le=10, description="of a call that was certainly not made")
    model_retry_patience_s: Seconds = Field(default=20.0, description="waited at most between tries, in sum")
    model_max_reply_bytes: int = Field(default=4_000_000, ge=10_000, le=100_000_000)

    @field_validator("anthropic_base_url", "openai_base_url")
    @classmethod
    def _an_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("must be http(s)://host[:port][/path], without user, password, query and fragment")
        return url.rstrip("/")


def provider_settings() -> ProviderSettings:
    """The settings as the environment has them. Raises `ModelError` naming the variable."""
    try:
        return ProviderSettings()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        variable = f"BURNISH_{first['loc'][0]}".upper() if first["loc"] else "BURNISH_…"
        raise ModelError(f"{variable}: {first['msg']}", retryable=False) from None
    except ValueError:  # pydantic-settings: a value that should be JSON is none
        raise ModelError('BURNISH_MODEL_TIERS must be JSON: {"analysis": "provider/name"}', retryable=False) from None


def api_key(given: SecretStr | None, file: Path | None, variable: str) -> SecretStr:
    """The key from its variable or from the file that `<variable>_FILE` names. Raises `ModelError` naming both."""
    if given is None and file is not None:
        try:
            given = SecretStr(read_text(file, MAX_KEY_BYTES))
        except UnreadableFile as error:
            raise ModelError(f"{variable}_FILE: {error}", retryable=False) from None
    key = "" if given is None else given.get_secret_value().strip()
    if not key:
        raise ModelError(f"there is no API key: set {variable}, or {variable}_FILE to a file", retryable=False)
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ModelError(f"{variable} is no API key: it has spaces or characters that no key has", retryable=False)
    return SecretStr(key)
