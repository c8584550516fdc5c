"""Tokens: what holds, what does not, and how keys are replaced."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import stat
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from jwt import PyJWK
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from libs.auth.errors import NotAuthenticated
from libs.auth.keys import JwksKeys
from libs.auth.signing import SigningKey, jwks, new_signing_key
from libs.auth.tokens import Verifier, mint

KEY = new_signing_key()
OTHER = new_signing_key()


class Clock:
    """A clock that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(jwks(KEY))
    return path


@pytest.fixture
def verifier(file: Path) -> Verifier:
    return Verifier(JwksKeys(str(file)), "burnish", "burnish")


def signed(claims: dict[str, Any], key: SigningKey = KEY, **header: Any) -> str:
    now = int(time.time())
    whole = {"iss": "burnish", "aud": "burnish", "sub": "ada", "exp": now + 60, **claims}
    kept = {name: value for name, value in whole.items() if value is not None}
    return jwt.encode(kept, PyJWK(key.jwk).key, algorithm="ES256", headers={"kid": key.kid, **header})


async def test_a_minted_token_says_who_asks(verifier: Verifier) -> None:
    here = uuid4()
    token = mint(KEY, "ada", organization="acme", workspaces=[here], roles=["admin"], scopes=["a:b", "c"])
    caller = await verifier.caller(f"Bearer {token}")
    assert (caller.subject, caller.organization) == ("ada", "acme")
    assert caller.roles == {"admin"}
    assert caller.scopes == {"a:b", "c"}
    assert caller.has_workspace(here)
    assert not caller.has_workspace(uuid4())


async def test_a_token_of_another_organisation_does_not_hold(file: Path) -> None:
    verifier = Verifier(JwksKeys(str(file)), "burnish", "burnish", organization="acme")
    assert (await verifier.caller(f"Bearer {mint(KEY, 'ada', organization='acme')}")).organization == "acme"
    for other in ("", "acme2"):
        with pytest.raises(NotAuthenticated, match="another organisation"):
            await verifier.caller(f"Bearer {mint(KEY, 'ada', organization=other, workspaces='*', roles=['admin'])}")


async def test_all_workspaces(verifier: Verifier) -> None:
    caller = await verifier.caller(f"bearer {mint(KEY, 'ada', workspaces='*')}")
    assert caller.has_workspace(UUID(int=0))


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer a.b.c", "Bearer " + "x" * 9_000, "Bearer \u00ff"]
)
async def test_what_is_no_token_does_not_hold(verifier: Verifier, header: str | None) -> None:
    with pytest.raises(NotAuthenticated):
        await verifier.caller(header)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "eve"},
        {"aud": "other"},
        {"aud": None},
        {"exp": 1},
        {"exp": None},
        {"nbf": 4_102_444_800},  # 2100; a fixed time, since it is part of the test's name
        {"sub": None},
        {"sub": ""},
        {"sub": "two\nlines"},
        {"sub": "x" * 201},
        {"roles": "admin"},
        {"roles": [1]},
        {"workspaces": ["not-a-uuid"]},
        {"workspaces": {"*": 1}},
    ],
    ids=str,
)
async def test_wrong_claims_do_not_hold(verifier: Verifier, claims: dict[str, Any]) -> None:
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {signed(claims)}")


async def test_another_key_under_the_same_id_does_not_hold(verifier: Verifier) -> None:
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {signed({}, OTHER, kid=KEY.kid)}")


async def test_a_changed_body_does_not_hold(verifier: Verifier) -> None:
    head, _, signature = mint(KEY, "ada").split(".")
    forged = _part({"sub": "ada", "roles": ["admin"]})
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {head}.{forged}.{signature}")


async def test_unsigned_and_symmetric_tokens_do_not_hold(verifier: Verifier) -> None:
    claims = {"iss": "burnish", "aud": "burnish", "sub": "ada", "exp": int(time.time()) + 60}
    public = PyJWK(KEY.public()).key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for algorithm in ("none", "HS256"):
        body = f"{_part({'alg': algorithm, 'kid': KEY.kid})}.{_part(claims)}"
        signature = hmac.digest(public, body.encode(), "sha256") if algorithm == "HS256" else b""
        token = f"{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
        with pytest.raises(NotAuthenticated):
            await verifier.caller(f"Bearer {token}")


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_an_algorithm_that_is_not_pinned_does_not_hold(tmp_path: Path) -> None:
    rsa_key = rsa.generate_private_key(65537, 2048)
    okp_key = ed25519.Ed25519PrivateKey.generate()
    published = [
        {**json.loads(RSAAlgorithm.to_jwk(rsa_key.public_key())), "kid": "rsa"},
        {**json.loads(OKPAlgorithm.to_jwk(okp_key.public_key())), "kid": "okp"},
    ]
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": published}))
    claims = {"iss": "burnish", "aud": "burnish", "sub": "ada", "exp": int(time.time()) + 60}
    tokens = [
        jwt.encode(claims, rsa_key, algorithm="RS256", headers={"kid": "rsa"}),
        jwt.encode(claims, okp_key, algorithm="EdDSA", headers={"kid": "okp"}),
    ]
    every = Verifier(JwksKeys(str(path)), "burnish", "burnish", ("ES256", "EdDSA", "RS256"))
    for token in tokens:
        assert (await every.caller(f"Bearer {token}")).subject == "ada"
    pinned = Verifier(JwksKeys(str(path)), "burnish", "burnish", ("ES256",))
    for token in tokens:
        with pytest.raises(NotAuthenticated):
            await pinned.caller(f"Bearer {token}")


# --- keys --------------------------------------------------------------------------------------------------


async def test_a_new_key_is_found_and_a_removed_one_is_forgotten(file: Path) -> None:
    clock = Clock()
    verifier = Verifier(JwksKeys(str(file), clock=clock), "burnish", "burnish")
    await verifier.caller(f"Bearer {mint(KEY, 'ada')}")
    file.write_text(jwks(OTHER))
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {mint(OTHER, 'ada')}")
    clock.now += 11
    await verifier.caller(f"Bearer {mint(OTHER, 'ada')}")
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {mint(KEY, 'ada')}")


async def test_the_first_callers_wait_for_the_first_reading(file: Path) -> None:
    verifier = Verifier(JwksKeys(str(file)), "burnish", "burnish")
    callers = await asyncio.gather(*(verifier.caller(f"Bearer {mint(KEY, 'ada')}") for _ in range(5)))
    assert {caller.subject for caller in callers} == {"ada"}


@pytest.mark.parametrize(
    "document", ["", "[]", "{}", '{"keys": [5]}', '{"keys": [{"kid": "a", "kty": "EC"}]}', "x" * 300_000]
)
async def test_a_document_that_is_no_jwks_holds_no_key(tmp_path: Path, document: str) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(document)
    with pytest.raises(NotAuthenticated):
        await Verifier(JwksKeys(str(path)), "burnish", "burnish").caller(f"Bearer {mint(KEY, 'ada')}")


async def test_keys_known_go_on_to_hold_when_they_cannot_be_read_again(file: Path) -> None:
    clock = Clock()
    verifier = Verifier(JwksKeys(str(file), clock=clock), "burnish", "burnish")
    await verifier.caller(f"Bearer {mint(KEY, 'ada')}")
    file.unlink()
    clock.now += 1_000
    await verifier.caller(f"Bearer {mint(KEY, 'ada')}")


class Issuer(HTTPServer):
    """Serves a JWKS and counts how often it is asked."""

    asked = 0


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self.server.asked += 1
        body = jwks(KEY).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    server = Issuer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


async def test_made_up_key_ids_do_not_hammer_the_issuer(issuer: Issuer) -> None:
    clock = Clock()
    verifier = Verifier(JwksKeys(f"http://127.0.0.1:{issuer.server_port}/", clock=clock), "burnish", "burnish")
    await verifier.caller(f"Bearer {mint(KEY, 'ada')}")
    for _ in range(20):
        with pytest.raises(NotAuthenticated):
            await verifier.caller(f"Bearer {mint(new_signing_key(), 'eve')}")
    assert issuer.asked == 1
    clock.now += 11
    with pytest.raises(NotAuthenticated):
        await verifier.caller(f"Bearer {mint(OTHER, 'eve')}")
    assert issuer.asked == 2


@pytest.mark.parametrize("location", ["", "http://example.org/jwks.json", "ftp://example.org/x"])
def test_keys_are_not_read_from_where_they_could_be_forged(location: str) -> None:
    with pytest.raises(ValueError, match="BURNISH_JWT_JWKS"):
        JwksKeys(location)


async def test_without_any_key_it_is_not_ready(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="BURNISH_JWT_JWKS"):
        await JwksKeys(str(tmp_path / "none.json")).check()


def test_a_private_key_is_readable_by_its_owner_only_and_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    KEY.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert SigningKey.load(path) == KEY
    with pytest.raises(FileExistsError):
        OTHER.save(path)
    assert "d" not in KEY.public()
    assert KEY.jwk["d"] not in repr(KEY) + jwks(KEY)
