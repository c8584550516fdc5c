"""Settings of the gateway, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from libs.auth.claims import ClaimNames
from libs.auth.rights import ROLES
from libs.auth.tokens import Algorithm
from libs.service_kit.settings import KitSettings


class Settings(KitSettings):
    """What the gateway needs beyond the kit.

    `jwt_jwks`: a file path or an https URL of the issuer's public keys. `jwt_organization`: whose tokens hold, where
    the issuer serves several organisations; without it, those of any. `jwt_…_claim`: where an issuer puts what Burnish
    reads; `jwt_role_names`: its names of roles with ours (`admins=admin`), beside which no other name counts.
    `live_fresh_s`: how long a live prompt is
    served without asking the registry, should the fact that it changed get lost; `live_stale_s`: how long after that
    it is served while the registry does not answer.
    """

    jwt_issuer: str = "burnish"
    jwt_audience: str = "burnish"
    jwt_algorithms: Annotated[tuple[Algorithm, ...], NoDecode] = ("ES256", "EdDSA", "RS256")
    jwt_jwks: str = ""
    jwt_organization: str = ""
    jwt_roles_claim: str = "roles"
    jwt_role_names: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    jwt_scope_claim: str = "scope"
    jwt_organization_claim: str = "org"
    jwt_workspaces_claim: str = "workspaces"
    idempotency_hours: int = Field(default=24, ge=1, le=24 * 28)
    live_fresh_s: float = Field(default=5.0, ge=0.0)
    live_stale_s: float = Field(default=3_600.0, ge=0.0)
    live_cache_mib: int = Field(default=64, ge=1)

    @property
    def claim_names(self) -> ClaimNames:
        """The issuer's names for what a token says."""
        return ClaimNames(
            organization=self.jwt_organization_claim,
            workspaces=self.jwt_workspaces_claim,
            roles=self.jwt_roles_claim,
            scopes=self.jwt_scope_claim,
            role_names=self.jwt_role_names,
        )

    @field_validator("jwt_role_names", mode="before")
    @classmethod
    def _split_pairs(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        pairs = [each.rpartition("=") for each in value.split(",") if each.strip()]
        return {theirs.strip(): ours.strip() for theirs, _, ours in pairs}

    @field_validator("jwt_role_names")
    @classmethod
    def _require_roles(cls, value: dict[str, str]) -> dict[str, str]:
        if "" in value or not set(value.values()) <= set(ROLES):
            raise ValueError(f"each is THEIRS=OURS, separated by commas; ours are {', '.join(ROLES)}")
        return value

    @field_validator("jwt_algorithms", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        return tuple(filter(None, value.replace(",", " ").split())) if isinstance(value, str) else value
