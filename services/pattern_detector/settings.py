"""Settings of the pattern detector, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from pydantic import Field

from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """When runs begin by themselves, how much one looks at, and which embedder is used."""

    embedder: str = Field(default="static", description="static, sentence-transformers or openai")
    detect_every_s: float = Field(default=1.0, gt=0, description="how often is looked for touchpoints that are due")
    detect_quiet_s: float = Field(default=2.0, ge=0, description="a run begins when nothing new came for this long")
    detect_max_wait_s: float = Field(default=30.0, ge=0, description="or when the oldest new signal waited this long")
    detect_refresh_s: float = Field(default=86_400.0, gt=0, description="open patterns are judged at least this often")
    detect_max_signals: int = Field(default=50_000, ge=1, description="newest signals a run looks at")
    detect_max_text_signals: int = Field(default=3_000, ge=1, description="newest of them that are clustered by text")
    resolve_timeout_s: float = Field(default=2.0, gt=0, description="patience with the scanner for one question")
    resolve_recheck_s: float = Field(default=300.0, ge=0, description="evidence is asked after at most this often")
