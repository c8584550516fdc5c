"""Settings of the normaliser, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from pydantic import Field

from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs, and how often signals that came before their touchpoint are judged again."""

    rejudge_every_s: float = Field(default=1.0, gt=0.0)
