"""Settings of the Q&A library, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs; nothing of its own yet."""
