"""The public keys of an issuer: a JWKS from a file or a URL, kept, and read again when it has to be."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK

from libs.auth.errors import NotAuthenticated
from libs.files import read_bytes
from libs.service_kit import logging

log = logging.get(__name__)

MAX_JWKS_BYTES = 262_144
MAX_KEYS = 100
MAX_KID_CHARACTERS = 200
RSA_BITS = range(2_048, 8_193)
FETCH_TIMEOUT_S = 5.0
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
SECRET = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class Keys(Protocol):
    """Where public keys come from."""

    async def key(self, kid: str) -> PyJWK:
        """The key with this id. Raises NotAuthenticated when there is none."""
        ...


class JwksKeys:
    """The keys of a JWKS at a file path or an https URL (http on this machine only), cached.

    It is read from the configured place alone: what a token says about where its key is, is not looked at. An id that
    is not known makes it read again at once, but at most once in `refresh_wait_s`, so that tokens with made-up ids
    cannot make it hammer the issuer. A key that the issuer no longer publishes goes with the next reading. When
    reading fails, or what is read holds no key at all, the keys known so far go on to hold for `grace_s` after they
    were last seen, and no longer.
    """

    def __init__(
        self,
        location: str,
        *,
        ttl_s: float = 300.0,
        refresh_wait_s: float = 10.0,
        grace_s: float = 86_400.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._location = _checked_location(location)
        self._ttl_s = ttl_s
        self._refresh_wait_s = refresh_wait_s
        self._grace_s = grace_s
        self._clock = clock
        self._keys: dict[str, PyJWK] = {}
        self._tried_at: float | None = None
        self._seen_at = 0.0
        self._reading = asyncio.Lock()

    async def key(self, kid: str) -> PyJWK:
        if not 0 < len(kid) <= MAX_KID_CHARACTERS:
            raise NotAuthenticated("the id of the token's key is empty or too long")
        known = kid in self._keys
        if self._age() >= (self._ttl_s if known else self._refresh_wait_s) and not (known and self._reading.locked()):
            await self._refresh(kid)
        self._drop_stale()
        if kid not in self._keys:
            raise NotAuthenticated("the token is signed with a key that the issuer does not publish")
        return self._keys[kid]

    async def check(self) -> None:
        """For readiness: raises when no key is known and none can be read."""
        self._drop_stale()
        if not self._keys:
            await self._refresh("")
        if not self._keys:
            raise RuntimeError("no public key could be read from BURNISH_JWT_JWKS")

    def _age(self) -> float:
        return float("inf") if self._tried_at is None else self._clock() - self._tried_at

    def _drop_stale(self) -> None:
        if self._keys and self._clock() - self._seen_at > self._grace_s:
            log.error("jwks.stale", kept_s=self._grace_s)
            self._keys = {}

    async def _refresh(self, kid: str) -> None:
        async with self._reading:
            # Whoever waited here finds what the one before has read.
            wanted = self._ttl_s if kid in self._keys else self._refresh_wait_s
            if self._age() < wanted:
                return
            try:
                self._keys = public_keys(await self._read())
                self._seen_at = self._clock()
            except (OSError, ValueError, TimeoutError, httpx.HTTPError) as error:
                log.warning("jwks.unreadable", error=type(error).__name__)
            finally:
                # Only now: until then everyone with an unknown key waits here rather than being turned away.
                self._tried_at = self._clock()

    async def _read(self) -> bytes:
        if "://" not in self._location:
            return await asyncio.to_thread(read_bytes, self._location, MAX_JWKS_BYTES)
        async with asyncio.timeout(FETCH_TIMEOUT_S):
            return await _fetched(self._location)


async def _fetched(url: str) -> bytes:
    """The body as it is sent, no redirect followed. Raises ValueError beyond what a JWKS may have."""
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    body = bytearray()
    async with (
        httpx.AsyncClient(timeout=FETCH_TIMEOUT_S, follow_redirects=False) as client,
        client.stream("GET", url, headers=headers) as response,
    ):
        response.raise_for_status()
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise ValueError("the JWKS came compressed, which nobody asked for")
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > MAX_JWKS_BYTES:
                raise ValueError("the JWKS is too large")
    return bytes(body)


def _checked_location(location: str) -> str:
    parts = urlsplit(location)
    if not location:
        raise ValueError("BURNISH_JWT_JWKS is not set: give a file or an https URL with the issuer's public keys")
    if "://" in location and parts.scheme != "https" and (parts.scheme, parts.hostname) not in _LOCAL:
        raise ValueError("BURNISH_JWT_JWKS must be a file or an https URL: keys read over http can be forged")
    return location


_LOCAL = tuple(("http", host) for host in LOCAL_HOSTS)


def public_keys(document: bytes) -> dict[str, PyJWK]:
    """The usable keys by id; those of another kind, for encryption, or too weak are left out, secrets dropped.

    Raises ValueError for a document that is no JWKS, is too large, or has no usable key.
    """
    if len(document) > MAX_JWKS_BYTES:
        raise ValueError("the JWKS is too large")
    try:
        whole = json.loads(document)
    except RecursionError as error:
        raise ValueError("the JWKS is nested too deeply") from error
    listed = whole.get("keys") if isinstance(whole, dict) else None
    if not isinstance(listed, list) or len(listed) > MAX_KEYS:
        raise ValueError(f"a JWKS has a list of at most {MAX_KEYS} keys")
    usable = {each["kid"]: key for each in listed if (key := _usable(each)) is not None}
    if not usable:
        raise ValueError("the JWKS has no key that can be used")
    return usable


def _usable(described: object) -> PyJWK | None:
    """One key; None for one that signs nothing here. One that is broken says nothing about the others."""
    if not isinstance(described, Mapping) or described.get("kty") not in ("EC", "OKP", "RSA"):
        return None
    kid, operations = described.get("kid"), described.get("key_ops", ["verify"])
    if not isinstance(kid, str) or not 0 < len(kid) <= MAX_KID_CHARACTERS or described.get("use", "sig") != "sig":
        return None
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    try:
        key = PyJWK(_without_secret(described))
    except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
        return None
    if isinstance(key.key, RSAPublicKey) and key.key.key_size not in RSA_BITS:
        return None
    return key


def _without_secret(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in described.items() if name not in SECRET}
