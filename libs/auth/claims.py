"""From a verified token's claims to who asks: the subject, the organisation, workspaces, roles and scopes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

ALL_WORKSPACES = "*"
MAX_NAME = 200
LAST_SECOND = 253_402_300_799
"""The end of the year 9999: no time of a token is later."""


@dataclass(frozen=True)
class Caller:
    """Who asks, by a verified token. `workspaces` None means every workspace of the organisation."""

    subject: str
    organization: str = ""
    workspaces: frozenset[UUID] | None = frozenset()
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()

    def has_workspace(self, workspace_id: UUID) -> bool:
        """Whether the token holds for this workspace."""
        return self.workspaces is None or workspace_id in self.workspaces

    def has_role(self, roles: Iterable[str]) -> bool:
        """Whether the caller has one of these roles."""
        return not self.roles.isdisjoint(roles)


@dataclass(frozen=True)
class ClaimNames:
    """Under which names an issuer puts what Burnish reads; a name with dots also leads into nested claims.

    `role_names` gives the issuer's names of roles ours. Where there is one, no other name counts, so that an issuer's
    own `admin` is not taken for ours.
    """

    organization: str = "org"
    workspaces: str = "workspaces"
    roles: str = "roles"
    scopes: str = "scope"
    role_names: Mapping[str, str] = field(default_factory=dict)


def caller_of(claims: Mapping[str, Any], names: ClaimNames = ClaimNames()) -> Caller:
    """The caller that verified claims speak of. Raises ValueError for a claim of another kind than it should be."""
    workspaces = _found(claims, names.workspaces, [])
    roles = _texts(_found(claims, names.roles, []))
    if names.role_names:
        roles = [names.role_names[role] for role in roles if role in names.role_names]
    return Caller(
        subject=_name(claims.get("sub"), "sub"),
        organization=_optional_name(_found(claims, names.organization, ""), names.organization),
        workspaces=None if workspaces == ALL_WORKSPACES else frozenset(map(_uuid, _texts(workspaces))),
        roles=frozenset(roles),
        scopes=frozenset(_scopes(_found(claims, names.scopes, ""))),
    )


def require_times(claims: Mapping[str, Any]) -> None:
    """Raise ValueError unless each time in the claims is a number of seconds since 1970 that a clock can show."""
    for name in ("exp", "nbf", "iat"):
        value = claims.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("a time of the token is no number")
        if not math.isfinite(value) or not 0 <= value <= LAST_SECOND:
            raise ValueError("a time of the token is no time")


def _found(claims: Mapping[str, Any], name: str, otherwise: Any) -> Any:
    """The claim of this name, or what a path of names leads to."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        if not isinstance(value, Mapping) or step not in value:
            return otherwise
        value = value[step]
    return value


def _name(value: object, claim: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME or not value.isprintable() or not value.strip():
        raise ValueError(f"{claim} must be a printable text of at most {MAX_NAME} characters")
    return value


def _optional_name(value: object, claim: str) -> str:
    return "" if value in ("", None) else _name(value, claim)


def _uuid(text: str) -> UUID:
    if len(text) != 36:
        raise ValueError("a workspace is a UUID with its dashes")
    return UUID(text)


def _scopes(value: object) -> Iterable[str]:
    """Texts separated by spaces, as in RFC 8693, or a list of texts, as some issuers write it."""
    return value.split() if isinstance(value, str) else _texts(value)


def _texts(value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("a list of texts was expected")
    return value
