"""Settings of the agents service, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

from pydantic import Field, SecretStr

from libs.contracts.touchpoints import ModelSettings
from libs.llm import Budget
from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs, the engine that executes packs, and the model that refines them."""

    agents_engine_url: str = Field(default="", description="empty: the small engine, in this process")
    agents_engine_token: SecretStr = SecretStr("")
    agents_engine_folder: Path = Field(default=Path("engine"), description="where the small engine keeps its agents")
    agents_sweep_every_s: float = Field(default=2.0, gt=0)
    refine_provider: str = "offline"
    refine_model: str = "offline"
    refine_timeout_s: float = Field(default=55.0, gt=0, le=58, description="the gateway waits 60 s")

    refine_usd_per_day: Decimal = Field(default=Decimal(5), ge=0)
    refine_usd_per_agent_day: Decimal = Field(default=Decimal(1), ge=0)

    @property
    def budget(self) -> Budget:
        """What refine turns may cost. Days are UTC days."""
        return Budget(self.refine_usd_per_day, self.refine_usd_per_agent_day, in_flight_s=self.refine_timeout_s)

    @property
    def model(self) -> ModelSettings:
        """The model of refine turns."""
        return ModelSettings(provider=self.refine_provider, name=self.refine_model)
