"""The numbers of the ranking, which are fitted on data for each embedding model."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, Field


class Tuning(BaseModel):
    """How lanes are weighed and matches judged with one embedding model. Cosines are 1 at most."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    lexical: float = Field(ge=0, description="weight of a BM25 score beside a cosine")
    share: float = Field(ge=0, description="weight of the share of a query's words that a row has, 0 to 1")
    trigram: float = Field(ge=0, description="weight of a similarity of letters, 0 to 1, beside a cosine")
    pooling: float = Field(ge=0, le=1, description="share of a pair's nearest few phrasings; the rest is its nearest")
    curated: float = Field(ge=0, description="what a curated pair has ahead of an extraction")
    floor: float = Field(ge=-1, le=1, description="cosine below which nothing is found by its vector alone")
    fair: float = Field(description="score from which a match is fair")
    strong: float = Field(description="score from which a match is strong")
    near_duplicate: float = Field(ge=0, le=1, description="cosine from which two questions are perhaps one")


class Tunings(BaseModel):
    """Those of every model that was fitted, and cautious ones for any other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Mapping[str, Tuning]
    unfitted: Tuning

    def of(self, model: str) -> Tuning:
        """The numbers for this embedding model."""
        return self.models.get(model, self.unfitted)
