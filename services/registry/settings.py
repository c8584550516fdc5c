"""Settings of the registry, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the registry needs beyond the kit.

    `repository_roots`: the folders in which repositories with prompts may lie, separated as in `PATH`; without one,
    no repository can be registered, so that no caller makes the server read a folder of its choice.
    `ledger_key`: a file with the Ed25519 key, in PEM, that signs the ledger's head; without it, heads are not signed.
    """

    repository_roots: Annotated[tuple[Path, ...], NoDecode] = ()
    ledger_key: Path | None = None
    intents_every_s: float = Field(default=2.0, gt=0.0)
    drift_every_s: float = Field(default=30.0, gt=0.0)

    @field_validator("repository_roots", mode="before")
    @classmethod
    def _split_paths(cls, value: object) -> object:
        return tuple(filter(None, value.split(os.pathsep))) if isinstance(value, str) else value
