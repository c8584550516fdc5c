"""Keys out of a JWKS on a real server: found, replaced, kept while it is away, dropped when that takes too long."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from libs.auth.errors import NotAuthenticated
from libs.auth.keys import MAX_JWKS_BYTES, JwksKeys, public_keys
from libs.auth.signing import SigningKey, jwks, new_signing_key
from libs.auth.tokens import Verifier, mint

OLD, NEW = new_signing_key(), new_signing_key()
Answer = Callable[[BaseHTTPRequestHandler], None]


class Clock:
    """A clock that a test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Issuer(ThreadingHTTPServer):
    """Serves what a test tells it to, and remembers what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.answer: Answer = published(OLD)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/jwks"


class _Handler(BaseHTTPRequestHandler):
    server: Issuer

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        self.server.answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


def body(raw: bytes, status: int = 200, **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(raw)

    return answer


def published(*keys: SigningKey) -> Answer:
    return body(jwks(*keys).encode())


def without_end(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(10_000):
            handler.wfile.write(b" " * 65_536)
    except OSError:
        pass


def by_drops(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    try:
        for _ in range(100):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.1)
    except OSError:
        pass


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    server = Issuer()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def verifier(issuer: Issuer, clock: Clock) -> Verifier:
    return Verifier(JwksKeys(issuer.url, clock=clock), "burnish", "burnish")


async def holds(verifier: Verifier, key: SigningKey) -> bool:
    try:
        await verifier.caller(f"Bearer {mint(key, 'ada')}")
    except NotAuthenticated:
        return False
    return True


async def test_a_new_key_is_fetched_once_however_many_ask(verifier: Verifier, issuer: Issuer, clock: Clock) -> None:
    assert await holds(verifier, OLD)
    issuer.answer = published(OLD, NEW)
    clock.now += 11
    assert all(await asyncio.gather(*(holds(verifier, NEW) for _ in range(30))))
    assert len(issuer.asked) == 2
    assert await holds(verifier, OLD)


async def test_a_key_that_is_no_longer_published_goes_with_the_next_reading(
    verifier: Verifier, issuer: Issuer, clock: Clock
) -> None:
    assert await holds(verifier, OLD)
    issuer.answer = published(NEW)
    assert await holds(verifier, OLD)
    clock.now += 301
    assert not await holds(verifier, OLD)
    assert await holds(verifier, NEW)


TROUBLE: dict[str, Answer] = {
    "an error": body(b"", 500),
    "not there": body(b"{}", 404),
    "no JSON": body(b"<html>"),
    "no keys": body(b'{"keys": []}'),
    "keys of no kind": body(b'{"keys": {"a": 1}}'),
    "nested deeply": body(b"[" * 100_000),
    "too large": body(b" " * (MAX_JWKS_BYTES + 1)),
    "too many": body(json.dumps({"keys": [{**OLD.public(), "kid": str(n)} for n in range(101)]}).encode()),
    "without an end": without_end,
    "compressed": body(gzip.compress(jwks(NEW).encode()), Content_Encoding="gzip"),
    "elsewhere": body(b"", 302, Location="/elsewhere"),
    "elsewhere for good": body(b"", 308, Location="/elsewhere"),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
async def test_while_the_issuer_is_in_trouble_its_keys_hold_for_a_day_and_no_longer(
    verifier: Verifier, issuer: Issuer, clock: Clock, trouble: Answer
) -> None:
    assert await holds(verifier, OLD)
    issuer.answer = trouble
    clock.now += 301
    assert await holds(verifier, OLD)
    assert not await holds(verifier, NEW)
    assert len(issuer.asked) == 2
    clock.now += 86_000
    assert await holds(verifier, OLD)
    clock.now += 400
    assert not await holds(verifier, OLD)
    issuer.answer = published(OLD)
    clock.now += 11
    assert await holds(verifier, OLD)
    assert set(issuer.asked) == {"/jwks"}  # no redirect was followed


async def test_an_issuer_that_answers_by_drops_is_given_up(
    verifier: Verifier, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("libs.auth.keys.FETCH_TIMEOUT_S", 0.3)
    issuer.answer = by_drops
    started = time.monotonic()
    assert not await holds(verifier, OLD)
    assert time.monotonic() - started < 3


async def test_an_issuer_that_is_not_there_makes_it_not_ready_until_it_is(issuer: Issuer, clock: Clock) -> None:
    issuer.answer = body(b"", 503)
    keys = JwksKeys(issuer.url, clock=clock)
    with pytest.raises(RuntimeError):
        await keys.check()
    issuer.answer = published(OLD)
    clock.now += 11
    await keys.check()


async def test_keys_that_cannot_be_used_say_nothing_about_the_others() -> None:
    weak = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65_537, 1_024).public_key()))
    unusable: list[Any] = [
        5,
        None,
        [],
        {},
        {"kid": "a", "kty": "EC"},
        {"kid": "a", "kty": "EC", "crv": "P-256", "x": 5, "y": None},
        {"kid": "a", "kty": "EC", "crv": "P-256", "x": "!", "y": "!"},
        {"kid": ["a"], **{name: value for name, value in OLD.public().items() if name != "kid"}},
        {**OLD.public(), "kid": "x" * 300},
        {**OLD.public(), "kid": "enc", "use": "enc"},
        {**OLD.public(), "kid": "sign", "key_ops": ["sign"]},
        {**OLD.public(), "kid": "ops", "key_ops": 5},
        {**weak, "kid": "weak"},
        {"kid": "secret", "kty": "oct", "k": "c2VjcmV0"},
    ]
    found = public_keys(json.dumps({"keys": [*unusable, NEW.public()]}).encode())
    assert list(found) == [NEW.kid]


async def test_a_private_key_that_was_published_by_mistake_is_taken_as_its_public_half() -> None:
    found = public_keys(json.dumps({"keys": [OLD.jwk]}).encode())
    assert not hasattr(found[OLD.kid].key, "private_numbers")


@pytest.mark.parametrize("location", ["http://localhost.example.org/x", "ftp://localhost/x", "file:///etc/passwd"])
def test_places_that_only_look_local_are_refused(location: str) -> None:
    with pytest.raises(ValueError, match="BURNISH_JWT_JWKS"):
        JwksKeys(location)


async def test_a_file_without_an_end_is_not_read() -> None:
    assert not await holds(Verifier(JwksKeys("/dev/zero"), "burnish", "burnish"), OLD)
