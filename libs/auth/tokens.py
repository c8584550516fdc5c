"""Bearer tokens: verified against an issuer's keys, and minted with a key of one's own.

A token's claims beside the registered ones: `org` (text), `workspaces` (list of UUIDs, or `"*"` for all of the
organisation's), `roles` (list of texts), `scope` (texts separated by spaces, as in RFC 8693).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID, uuid4

import jwt
from jwt import PyJWK

from libs.auth.claims import ALL_WORKSPACES, Caller, ClaimNames, caller_of, require_times
from libs.auth.errors import NotAuthenticated
from libs.auth.keys import Keys
from libs.auth.signing import SigningKey

Algorithm = Literal["ES256", "EdDSA", "RS256"]
MAX_TOKEN_CHARACTERS = 8_192
TYPES = ("jwt", "at+jwt", "application/at+jwt")
"""What a token may say that it is. Not a logout token, nor anything else that the same keys sign."""


@dataclass(frozen=True)
class Verifier:
    """What a token must be to hold here: by this issuer, for this audience, with one of these algorithms.

    With an `organization`, only tokens of that one hold: an issuer may serve several, and to each of them `"*"` means
    all workspaces.
    """

    keys: Keys
    issuer: str
    audience: str
    algorithms: tuple[Algorithm, ...] = ("ES256",)
    leeway_s: float = 10.0
    organization: str = ""
    claim_names: ClaimNames = field(default_factory=ClaimNames)

    async def caller(self, authorization: str | None) -> Caller:
        """The caller behind an `Authorization` header. Raises NotAuthenticated."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_CHARACTERS or not token.isascii():
            raise NotAuthenticated("there is no bearer token")
        try:
            caller = caller_of(await self._claims(token), self.claim_names)
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise NotAuthenticated(type(error).__name__) from error
        if self.organization and caller.organization != self.organization:
            raise NotAuthenticated("the token is of another organisation")
        return caller

    async def _claims(self, token: str) -> dict[str, Any]:
        key = await self._key(jwt.get_unverified_header(token))
        # The times are looked at before they are compared: PyJWT fails in its own ways on what is no time.
        unverified = jwt.decode(token, options={"verify_signature": False})
        require_times(unverified)
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(self.algorithms),
            issuer=self.issuer,
            audience=self.audience,
            leeway=self.leeway_s,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims

    async def _key(self, header: dict[str, Any]) -> PyJWK:
        """The issuer's key that the header names. Where a header says that keys are found is not looked at."""
        kid = header.get("kid")
        if header.get("alg") not in self.algorithms or not isinstance(kid, str):
            raise NotAuthenticated("the token's algorithm is not one of those that hold here, or its key has no id")
        if "crit" in header or "b64" in header or str(header.get("typ", "JWT")).lower() not in TYPES:
            raise NotAuthenticated("the token is of another type, or asks for what is not understood")
        key = await self.keys.key(kid)
        if key.algorithm_name != header["alg"]:
            raise NotAuthenticated("the token's algorithm is not that of its key")
        return key


def mint(
    key: SigningKey,
    subject: str,
    *,
    issuer: str = "burnish",
    audience: str = "burnish",
    organization: str = "",
    workspaces: Iterable[UUID] | Literal["*"] = (),
    roles: Iterable[str] = (),
    scopes: Iterable[str] = (),
    lifetime_s: float = 3600.0,
    now: float | None = None,
) -> str:
    """A token for `subject`, valid for `lifetime_s` seconds from `now` (seconds since 1970, by default the clock's)."""
    issued = time.time() if now is None else now
    claims: dict[str, Any] = {
        "iss": issuer,
        "aud": audience,
        "sub": subject,
        "jti": uuid4().hex,
        "iat": int(issued),
        "nbf": int(issued),
        "exp": int(issued + lifetime_s),
        "org": organization,
        "workspaces": ALL_WORKSPACES if workspaces == ALL_WORKSPACES else [str(each) for each in workspaces],
        "roles": list(roles),
        "scope": " ".join(scopes),
    }
    return jwt.encode(claims, PyJWK(key.jwk).key, algorithm="ES256", headers={"kid": key.kid})
