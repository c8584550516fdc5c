"""Bearer tokens: verification against a JWKS with rotation, and keys and tokens of one's own for small installations.

A token's claims beside the registered ones: `org` (text), `workspaces` (list of UUIDs, or `"*"` for all of the
organisation's), `roles` (list of texts), `scope` (texts separated by spaces, as in RFC 8693).
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm

from libs.files import read_bytes, read_text
from libs.service_kit import logging

log = logging.get(__name__)

Algorithm = Literal["ES256", "EdDSA", "RS256"]
ALL_WORKSPACES = "*"
MAX_TOKEN_CHARACTERS = 8_192
MAX_JWKS_BYTES = 262_144
MAX_KEY_BYTES = 65_536
FETCH_TIMEOUT_S = 5.0
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


class NotAuthenticated(Exception):
    """The token is missing or is not one that holds here. The message is for a log, never for the caller."""


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


# --- public keys ------------------------------------------------------------------------------------------


class Keys(Protocol):
    """Where public keys come from."""

    async def key(self, kid: str) -> PyJWK:
        """The key with this id. Raises NotAuthenticated when there is none."""
        ...


class JwksKeys:
    """The keys of a JWKS at a file path or an https URL (http on this machine only), cached.

    An id that is not known makes it read again at once, but at most once in `refresh_wait_s`, so that tokens with
    made-up ids cannot make it hammer the issuer. When reading fails, the keys known so far go on to hold.
    """

    def __init__(
        self,
        location: str,
        *,
        ttl_s: float = 300.0,
        refresh_wait_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._location = _checked_location(location)
        self._ttl_s = ttl_s
        self._refresh_wait_s = refresh_wait_s
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._read_at: float | None = None
        self._reading = asyncio.Lock()

    async def key(self, kid: str) -> PyJWK:
        """See `Keys`."""
        known = kid in self._keys
        if self._age() >= (self._ttl_s if known else self._refresh_wait_s) and not (known and self._reading.locked()):
            await self._refresh(kid)
        if kid not in self._keys:
            raise NotAuthenticated("the token is signed with a key that the issuer does not publish")
        return self._keys[kid]

    async def check(self) -> None:
        """For readiness: raises when no key is known and none can be read."""
        if not self._keys:
            await self._refresh("")
        if not self._keys:
            raise RuntimeError("no public key could be read from BURNISH_JWT_JWKS")

    def _age(self) -> float:
        return float("inf") if self._read_at is None else self._clock() - self._read_at

    async def _refresh(self, kid: str) -> None:
        async with self._reading:
            # Whoever waited here finds what the one before has read.
            wanted = self._ttl_s if kid in self._keys else self._refresh_wait_s
            if self._age() < wanted:
                return
            try:
                self._keys = _public_keys(await self._read())
            except (OSError, ValueError, AttributeError, httpx.HTTPError, jwt.PyJWTError) as error:
                log.warning("jwks.unreadable", error=type(error).__name__)
            finally:
                # Only now: until then everyone with an unknown key waits here rather than being turned away.
                self._read_at = self._clock()

    async def _read(self) -> bytes:
        if "://" not in self._location:
            return await asyncio.to_thread(read_bytes, self._location, MAX_JWKS_BYTES)
        async with httpx.AsyncClient(timeout=FETCH_TIMEOUT_S, follow_redirects=False) as client:
            response = await client.get(self._location)
            response.raise_for_status()
            return response.content


def _checked_location(location: str) -> str:
    parts = urlsplit(location)
    if not location:
        raise ValueError("BURNISH_JWT_JWKS is not set: give a file or an https URL with the issuer's public keys")
    if "://" in location and parts.scheme != "https" and parts.hostname not in LOCAL_HOSTS:
        raise ValueError("BURNISH_JWT_JWKS must be a file or an https URL: keys read over http can be forged")
    return location


def _public_keys(document: bytes) -> dict[str, PyJWK]:
    """The usable keys by id; those of another kind, for encryption, or secret are left out."""
    if len(document) > MAX_JWKS_BYTES:
        raise ValueError("the JWKS is too large")
    keys = json.loads(document).get("keys", [])
    usable = [key for key in keys if key.get("kid") and key.get("kty") in ("EC", "OKP", "RSA")]
    return {key["kid"]: PyJWK(_without_secret(key)) for key in usable if key.get("use", "sig") == "sig"}


def _without_secret(key: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in key.items() if name not in ("d", "p", "q", "dp", "dq", "qi", "oth")}


# --- verification -----------------------------------------------------------------------------------------


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

    async def caller(self, authorization: str | None) -> Caller:
        """The caller behind an `Authorization` header. Raises NotAuthenticated."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > MAX_TOKEN_CHARACTERS:
            raise NotAuthenticated("there is no bearer token")
        try:
            caller = _caller(await self._claims(token))
        except (jwt.PyJWTError, ValueError, TypeError, KeyError) as error:
            raise NotAuthenticated(type(error).__name__) from error
        if self.organization and caller.organization != self.organization:
            raise NotAuthenticated("the token is of another organisation")
        return caller

    async def _claims(self, token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in self.algorithms or not isinstance(header.get("kid"), str):
            raise NotAuthenticated("the token's algorithm is not one of those that hold here, or its key has no id")
        claims: dict[str, Any] = jwt.decode(
            token,
            await self.keys.key(header["kid"]),
            algorithms=list(self.algorithms),
            issuer=self.issuer,
            audience=self.audience,
            leeway=self.leeway_s,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        return claims


def _caller(claims: Mapping[str, Any]) -> Caller:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 1 <= len(subject) <= 200 or not subject.isprintable():
        raise ValueError("sub must be a printable text of at most 200 characters")
    workspaces = claims.get("workspaces", [])
    return Caller(
        subject=subject,
        organization=str(claims.get("org", "")),
        workspaces=None if workspaces == ALL_WORKSPACES else frozenset(UUID(each) for each in _texts(workspaces)),
        roles=frozenset(_texts(claims.get("roles", []))),
        scopes=frozenset(str(claims.get("scope", "")).split()),
    )


def _texts(value: object) -> Iterable[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("a list of texts was expected")
    return value


# --- keys and tokens of one's own -------------------------------------------------------------------------


@dataclass(frozen=True)
class SigningKey:
    """A private ES256 key with its id. Kept in a file that only its owner can read."""

    jwk: dict[str, str] = field(repr=False)

    @property
    def kid(self) -> str:
        """The key's id."""
        return self.jwk["kid"]

    def public(self) -> dict[str, str]:
        """The public half, as it stands in a JWKS."""
        return {name: value for name, value in self.jwk.items() if name != "d"}

    def save(self, path: Path) -> None:
        """Write the private key to a new file, mode 0600. Raises FileExistsError rather than replace a key."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self.jwk, file)

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read a key that `save` wrote."""
        return cls(json.loads(read_text(path, MAX_KEY_BYTES)))


def new_signing_key() -> SigningKey:
    """A fresh key on P-256."""
    private = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1())))
    return SigningKey({**private, "kid": uuid4().hex, "alg": "ES256", "use": "sig"})


def jwks(*keys: SigningKey) -> str:
    """The public JWKS document of these keys; several while a key is being replaced."""
    return json.dumps({"keys": [key.public() for key in keys]})


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
