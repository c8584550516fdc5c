"""Settings of the proposal service, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from decimal import Decimal

from pydantic import Field

from libs.llm import Budget
from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the kit needs, and what writing proposals may cost. Days are UTC days."""

    proposal_model: str = Field(
        default="",
        pattern=r"^([a-z_]+/\S+)?$",
        max_length=200,
        description="provider/name of the writer; without it the tier `analysis`, else the touchpoint's model",
    )
    proposal_usd_per_day: Decimal = Field(default=Decimal(5), ge=0)
    proposal_usd_per_touchpoint_day: Decimal = Field(default=Decimal(1), ge=0)
    proposal_call_timeout_s: float = Field(default=120.0, gt=0)

    @property
    def budget(self) -> Budget:
        """The limits of the model pool: one paid call at a time."""
        return Budget(
            self.proposal_usd_per_day,
            self.proposal_usd_per_touchpoint_day,
            in_flight_s=self.proposal_call_timeout_s,
        )
