"""Settings of the registry and its gateway, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from libs.auth.tokens import Algorithm
from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the registry needs beyond the kit.

    `repository_roots`: the folders in which repositories with prompts may lie, separated as in `PATH`; without one,
    no repository can be registered, so that no caller makes the server read a folder of its choice.
    `jwt_jwks`: a file path or an https URL of the issuer's public keys. `jwt_organization`: whose tokens hold, where
    the issuer serves several organisations; without it, those of any.
    """

    repository_roots: Annotated[tuple[Path, ...], NoDecode] = ()
    jwt_issuer: str = "burnish"
    jwt_audience: str = "burnish"
    jwt_algorithms: Annotated[tuple[Algorithm, ...], NoDecode] = ("ES256", "EdDSA", "RS256")
    jwt_jwks: str = ""
    jwt_organization: str = ""
    intents_every_s: float = Field(default=2.0, gt=0.0)
    drift_every_s: float = Field(default=30.0, gt=0.0)
    idempotency_hours: int = Field(default=24, ge=1)

    @field_validator("repository_roots", mode="before")
    @classmethod
    def _split_paths(cls, value: object) -> object:
        return tuple(filter(None, value.split(os.pathsep))) if isinstance(value, str) else value

    @field_validator("jwt_algorithms", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(filter(None, value.replace(",", " ").split())) if isinstance(value, str) else value
