"""Settings of the gateway, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from libs.auth.tokens import Algorithm
from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the gateway needs beyond the kit.

    `jwt_jwks`: a file path or an https URL of the issuer's public keys. `jwt_organization`: whose tokens hold, where
    the issuer serves several organisations; without it, those of any. `live_fresh_s`: how long a live prompt is
    served without asking the registry, should the fact that it changed get lost; `live_stale_s`: how long after that
    it is served while the registry does not answer.
    """

    jwt_issuer: str = "burnish"
    jwt_audience: str = "burnish"
    jwt_algorithms: Annotated[tuple[Algorithm, ...], NoDecode] = ("ES256", "EdDSA", "RS256")
    jwt_jwks: str = ""
    jwt_organization: str = ""
    idempotency_hours: int = Field(default=24, ge=1, le=24 * 28)
    live_fresh_s: float = Field(default=5.0, ge=0.0)
    live_stale_s: float = Field(default=3_600.0, ge=0.0)
    live_cache_mib: int = Field(default=64, ge=1)

    @field_validator("jwt_algorithms", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(filter(None, value.replace(",", " ").split())) if isinstance(value, str) else value
