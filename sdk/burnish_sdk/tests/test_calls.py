"""Calls: what is sent, what comes back, what goes wrong, and when it is tried again."""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnish_sdk import (
    AsyncClient,
    BurnishError,
    Busy,
    Client,
    ConfigurationError,
    Conflict,
    Invalid,
    NoHttp,
    NotAllowed,
    NotFound,
    Options,
    Problem,
    Retry,
    ServerError,
    Signal,
    SignalPayload,
    TimedOut,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from burnish_sdk import client as clients
from burnish_sdk.retry import NEVER
from burnish_sdk.tests.conftest import FAST, LIVE, TOKEN, Fake, Reply, Seen, problem

ID = "22222222-2222-4222-8222-222222222222"
FLAG = Signal(
    touchpoint_id="support.intent", signal_type="flag", payload=SignalPayload(text="wrong", expected="refund")
)


def accepted(seen: Seen) -> Reply:
    ids = [ID for _ in seen.json["signals"]]
    return Reply({"accepted": len(ids), "signal_ids": ids, "more": "of a newer gateway"}, 202)


# --- pushing ----------------------------------------------------------------------------------------------


def test_a_push_says_what_was_seen_and_has_a_key(fake: Fake, client: Client) -> None:
    fake.reply = accepted
    taken = client.signals.push(FLAG)
    assert (taken.accepted, str(taken.signal_ids[0])) == (1, ID)
    (seen,) = fake.seen
    assert (seen.method, seen.path) == ("POST", "/api/refinement/signals")
    assert seen.headers["Authorization"] == f"Bearer {TOKEN}"
    assert seen.json == {
        "signals": [
            {
                "touchpoint_id": "support.intent",
                "signal_type": "flag",
                "payload": {"text": "wrong", "expected": "refund"},
            }
        ]
    }
    assert re.fullmatch("[0-9a-f]{32}", seen.headers["Idempotency-Key"])


def test_a_push_that_may_have_arrived_is_sent_again_with_its_key(fake: Fake, client: Client) -> None:
    fake.first = [None, problem(503), problem(429)]
    fake.reply = accepted
    assert client.signals.push(FLAG).accepted == 1
    assert len(fake.seen) == 4
    assert len({seen.headers["Idempotency-Key"] for seen in fake.seen}) == 1
    assert len({seen.body for seen in fake.seen}) == 1


def test_many_signals_go_in_pushes_of_a_thousand_with_keys_of_their_own(fake: Fake, client: Client) -> None:
    fake.reply = accepted
    assert client.signals.push_all((FLAG for _ in range(2_001)), idempotency_key="nightly").accepted == 2_001
    assert [len(seen.json["signals"]) for seen in fake.seen] == [1_000, 1_000, 1]
    assert [seen.headers["Idempotency-Key"] for seen in fake.seen] == ["nightly", "nightly:1", "nightly:2"]
    assert client.signals.push().accepted == 0
    assert len(fake.seen) == 3


def test_large_signals_stay_below_the_limit_of_a_body(fake: Fake, client: Client) -> None:
    fake.reply = accepted
    large = FLAG.model_copy(update={"payload": SignalPayload(text="ü" * 20_000)})
    assert client.signals.push_all([large] * 200).accepted == 200
    assert len(fake.seen) == 3
    assert all(len(seen.body) < 4 * 1024 * 1024 for seen in fake.seen)


@pytest.mark.parametrize(
    "wrong",
    [
        {"touchpoint_id": "No Such"},
        {"signal_type": "shout"},
        {"payload": {"confidence": 2}},
        {"payload": {"confidence": float("nan")}},
        {"colour": "red"},
        {"source_key": ""},
    ],
)
def test_a_wrong_signal_is_refused_here_without_its_text(wrong: dict[str, Any]) -> None:
    fields = {"touchpoint_id": "t", "signal_type": "flag", "payload": {"text": "hunter2"}, **wrong}
    with pytest.raises(ValueError, match=next(iter(wrong))) as refused:
        Signal.model_validate(fields)
    assert "hunter2" not in str(refused.value)


def test_half_a_character_cannot_be_sent(client: Client, fake: Fake) -> None:
    with pytest.raises(ConfigurationError):
        client.signals.push(FLAG.model_copy(update={"source_key": "\ud800"}))
    assert not fake.seen


@pytest.mark.parametrize("key", ["", "a" * 181, "ü", "a\nb"])
def test_a_key_that_no_header_takes_is_refused(client: Client, key: str) -> None:
    with pytest.raises(ConfigurationError):
        client.signals.push(FLAG, idempotency_key=key)


# --- reading ----------------------------------------------------------------------------------------------


def signal(number: int) -> dict[str, Any]:
    at = "2026-11-01T00:00:00Z"
    return {
        "signal_id": f"00000000-0000-4000-8000-{number:012}",
        "touchpoint_id": "t",
        "evidence_ref": {},
        "payload": {"text": "x"},
        "actor_id": "a",
        "actor_kind": "human",
        "source_key": str(number),
        "first_seen": at,
        "last_seen": at,
        "created_at": at,
    }


def paged(seen: Seen) -> Reply:
    at = int(seen.path.split("cursor=")[1]) if "cursor=" in seen.path else 0
    return Reply({"signals": [signal(at), signal(at + 1)], "next": str(at + 2) if at < 4 else None})


def test_lists_follow_the_cursor(fake: Fake, client: Client) -> None:
    fake.reply = paged
    keys = [one.source_key for one in client.signals.list(touchpoint_id="t", rejected=False)]
    assert keys == ["0", "1", "2", "3", "4", "5"]
    assert [seen.path for seen in fake.seen] == [
        "/api/refinement/signals?touchpoint_id=t&rejected=false&limit=100",
        "/api/refinement/signals?touchpoint_id=t&rejected=false&limit=100&cursor=2",
        "/api/refinement/signals?touchpoint_id=t&rejected=false&limit=100&cursor=4",
    ]


def test_a_list_that_is_left_early_asks_for_no_more(fake: Fake, client: Client) -> None:
    fake.reply = paged
    assert next(client.signals.list()).source_key == "0"
    assert len(fake.seen) == 1


def test_a_page_that_leads_to_itself_is_no_list(fake: Fake, client: Client) -> None:
    fake.reply = lambda _: Reply({"signals": [], "next": "1"})
    with pytest.raises(UnexpectedAnswer, match="leads to itself"):
        list(client.signals.pages())


async def test_in_an_event_loop_it_is_the_same(fake: Fake) -> None:
    fake.reply = paged
    async with AsyncClient(fake.url, TOKEN, FAST) as client:
        assert [one.source_key async for one in client.signals.list()] == ["0", "1", "2", "3", "4", "5"]
        fake.reply = accepted
        assert (await client.signals.push(FLAG, FLAG)).accepted == 2
        fake.reply = lambda _: Reply({"counts": []})
        assert (await client.signals.counts()).counts == ()
        fake.reply = lambda _: Reply({"anything": [1]})
        assert await client.request("PUT", "/things", body={"a": None}) == {"anything": [1]}
    assert fake.seen[-1].body == b'{"a":null}'


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (clients.AsyncSignals, clients.Signals),
        (clients.AsyncPrompts, clients.Prompts),
        (clients.AsyncClient, clients.Client),
    ],
)
def test_both_clients_have_the_same_methods(ours: type, theirs: type) -> None:
    def shape(kind: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [(each.name, each.default, each.kind) for each in inspect.signature(method).parameters.values()]
            for name, method in vars(kind).items()
            if inspect.isfunction(method) and (name == "request" or not name.startswith("_"))
        }

    assert shape(ours) == shape(theirs)


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, NotAllowed),
        (403, NotAllowed),
        (404, NotFound),
        (409, Conflict),
        (413, Invalid),
        (422, Invalid),
        (418, Problem),
        (429, Busy),
        (500, ServerError),
        (502, Unavailable),
        (503, Unavailable),
    ],
)
def test_a_refusal_is_an_error_of_its_kind(fake: Fake, status: int, kind: type[Problem]) -> None:
    errors = [{"loc": "signals[0].payload", "message": "too large", "hint": "Less."}, "nonsense"]
    fake.reply = lambda _: problem(status, "stable_word", "what would be right", errors=errors, live="git:1")
    with Client(fake.url, TOKEN, Options(retry=NEVER)) as client, pytest.raises(kind) as refused:
        client.signals.counts()
    error = refused.value
    assert type(error) is kind
    assert (error.status, error.code, error.detail) == (status, "stable_word", "what would be right")
    assert [(one.loc, one.message, one.hint) for one in error.errors] == [("signals[0].payload", "too large", "Less.")]
    assert error.extra == {"live": "git:1"}


DEEP = b"[" * 100_000 + b"]" * 100_000
NONSENSE = {
    "a list": Reply([]),
    "empty": Reply(b""),
    "html": Reply(b"<html>", headers={"Content-Type": "text/html"}),
    "html that says it is json": Reply(b"<html>"),
    "deep": Reply(DEEP),
    "deep within": Reply(b'{"counts": ' + DEEP + b"}"),
    "half a character": Reply(b'{"counts": [{"touchpoint_id": "\\ud800"}]}'),
    "not utf-8": Reply(b'{"counts": "\xff"}'),
    "nan": Reply(b'{"counts": NaN}'),
    "null": Reply(None),
    "another shape": Reply({"counts": [{"touchpoint_id": 1, "secret": "hunter2"}]}),
    "huge": Reply(b'"' + b"a" * 2_000_000 + b'"'),
    "no content": Reply(b"", 204),
    "not modified": Reply(b"", 304),
    "compressed": Reply(b"{}", headers={"Content-Encoding": "gzip"}),
    "elsewhere": Reply(b"", 302, {"Location": "http://elsewhere.example/"}),
}


@pytest.mark.parametrize("reply", [pytest.param(reply, id=name) for name, reply in NONSENSE.items()])
def test_what_is_no_gateway_is_told(fake: Fake, reply: Reply) -> None:
    fake.reply = lambda _: reply
    with Client(fake.url, TOKEN, Options(max_answer_bytes=1_000_000)) as client:
        with pytest.raises(UnexpectedAnswer) as told:
            client.signals.counts()
        assert told.value.status == reply.status
        assert "hunter2" not in str(told.value)
        assert len(str(told.value)) < 500
    assert len(fake.seen) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"", DEEP, b'{"detail": {"a": 1}}', b'{"errors": 5}', b'"x"'])
@pytest.mark.parametrize("status", [401, 500, 502])
def test_a_refusal_without_a_problem_keeps_its_status(fake: Fake, status: int, body: bytes) -> None:
    fake.reply = lambda _: Reply(body, status)
    with Client(fake.url, TOKEN, Options(retry=NEVER)) as client, pytest.raises(Problem) as refused:
        client.signals.counts()
    assert refused.value.status == status


@given(st.binary(max_size=200), st.sampled_from([200, 202, 301, 400, 422, 503]))
def test_whatever_is_answered_is_an_answer_or_a_typed_error(body: bytes, status: int) -> None:
    fake = SHARED[0]
    fake.reply = lambda _: Reply(body, status)
    with Client(fake.url, TOKEN, Options(retry=NEVER)) as client:
        try:
            client.signals.counts()
        except BurnishError:
            pass


SHARED: list[Fake] = []


@pytest.fixture(autouse=True, scope="module")
def _shared() -> Any:
    SHARED.append(Fake())
    yield
    SHARED.pop().close()


# --- away, slow, again ------------------------------------------------------------------------------------


def test_nobody_there(fake: Fake) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with Client(url, TOKEN, FAST) as client, pytest.raises(Unreachable, match="cannot be reached"):
        client.signals.push(FLAG)


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for() -> None:
    """Each drop comes in time; the whole does not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                for drop in b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 10_000:
                    try:
                        connection.sendall(bytes([drop]))
                    except OSError:
                        return
                    if stop.wait(0.05):
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        started = time.monotonic()
        patience = Options(timeout_s=0.5, retry=NEVER)
        with Client(url, TOKEN, patience) as client, pytest.raises(TimedOut, match=r"within 0\.5 s"):
            client.signals.counts()
        assert time.monotonic() - started < 5
        stop.set()
        thread.join()


def test_only_what_may_be_done_twice_is_sent_again(fake: Fake, client: Client) -> None:
    fake.first = [None]
    with pytest.raises(Unreachable):
        client.request("POST", "/touchpoints/t/scan")
    assert len(fake.seen) == 1
    fake.first = [None, problem(503), problem(502)]
    assert client.request("GET", "/touchpoints") == {}
    fake.first = [problem(503)]
    assert client.request("POST", "/touchpoints/t/activate", headers={"Idempotency-Key": "k"}) == {}
    for answer in (problem(500), problem(409), Reply(b"<html>")):
        count = len(fake.seen)
        fake.first = [answer]
        with pytest.raises(BurnishError):
            client.request("GET", "/touchpoints")
        assert len(fake.seen) == count + 1


def test_retry_after_is_respected(fake: Fake, client: Client) -> None:
    fake.first = [problem(503, headers={"Retry-After": "1"})]
    started = time.monotonic()
    client.request("GET", "/touchpoints")
    assert 1 <= time.monotonic() - started < 5


@pytest.mark.parametrize(("header", "expected"), [("120", 120.0), ("soon", None), ("-1", None), ("9" * 400, None)])
def test_a_retry_after_that_is_too_long_is_told(
    fake: Fake, client: Client, header: str, expected: float | None
) -> None:
    fake.reply = lambda _: problem(503, headers={"Retry-After": header})
    with pytest.raises(Unavailable) as told:
        client.signals.counts()
    assert told.value.retry_after == expected
    assert len(fake.seen) == (1 if expected else 4)


@given(st.integers(1, 8), st.floats(0, 1, exclude_max=True))
def test_waits_double_within_their_cap_and_are_never_all_the_same(attempt: int, chance: float) -> None:
    retry = Retry(attempts=9, base_s=0.1, cap_s=2.0)
    usual = min(2.0, 0.1 * 2 ** (attempt - 1))
    wait = retry.wait(Unreachable("away"), attempt, True, True, chance)
    assert wait is not None
    assert usual / 2 <= wait <= usual
    told = Unavailable(503, "c", "d", retry_after=3.0)
    asked = retry.wait(told, attempt, True, True, chance)
    assert asked is not None
    assert asked >= 3.0
    assert retry.wait(told, 9, True, True, chance) is None


# --- where and who ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8320",
        "ftp://a",
        "http://",
        "http://a:0",
        "http://a:99999",
        "http://user:hunter2@a",
        "http://a/?x=1",
        "http://a/#x",
        "http://a b",
        "http://[::1",
        None,
    ],
)
def test_a_base_url_that_is_none_is_refused_without_showing_it(url: Any) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(ConfigurationError, match="base URL") as refused:
            kind(url, TOKEN)
        assert "hunter2" not in str(refused.value)


def test_a_path_before_the_api_and_a_last_slash(fake: Fake) -> None:
    with Client(f"{fake.url}/burnish/", TOKEN, FAST) as client:
        client.request("GET", "/things", params={"a": [1, 2], "b": None})
    assert fake.seen[0].path == "/burnish/api/refinement/things?a=1&a=2"


@pytest.mark.parametrize("token", ["", "two words", "schlüssel", "a\r\nX-Other: b", "a" * 20_000, None])
def test_a_token_that_no_header_carries_is_refused_without_showing_it(fake: Fake, token: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Client(fake.url, token)
    assert not token or token not in str(refused.value)


def test_a_token_may_change(fake: Fake) -> None:
    tokens = iter(["one", "two", "no token"])
    with Client(fake.url, lambda: next(tokens), FAST) as client:
        client.request("GET", "/a")
        client.request("GET", "/b")
        with pytest.raises(ConfigurationError):
            client.request("GET", "/c")
    assert [seen.headers["Authorization"] for seen in fake.seen] == ["Bearer one", "Bearer two"]


def test_the_token_is_nowhere(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    def fail(call: Callable[[], Any]) -> None:
        with pytest.raises(BurnishError) as error:
            call()
        told.extend([repr(error.value), str(error.value), *traceback.format_exception(error.value)])
        told.append(json.dumps(vars(error.value), default=repr))

    with Client(fake.url, TOKEN, FAST) as client:
        told += [repr(client), str(client), repr(client.signals), repr(vars(client._running))]
        fake.reply = lambda seen: problem(401)
        fail(client.signals.counts)
        fake.reply = lambda _: None
        fail(client.signals.counts)
        fake.reply = lambda _: Reply(b"<html>")
        fail(client.signals.counts)
        fail(lambda: client.request("GET", "/\n"))
    assert fake.seen
    assert not [text for text in [*told, caplog.text] if TOKEN in text]


@pytest.mark.parametrize("touchpoint", ["", "..", "a/b", "a?b", "ü", "\ud800", "a\nb"])
def test_an_id_is_one_segment_of_the_path(fake: Fake, client: Client, touchpoint: str) -> None:
    fake.reply = lambda _: Reply(LIVE)
    try:
        client.prompts.live(touchpoint)
    except ConfigurationError:
        assert not fake.seen
    else:
        assert len(fake.seen[0].path.split("?")[0].split("/")) == 6


def test_a_client_can_be_closed_twice_and_used_by_many_threads(fake: Fake) -> None:
    client = Client(fake.url, TOKEN, FAST)
    fake.reply = lambda _: Reply({"counts": []})
    threads = [threading.Thread(target=client.signals.counts) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.seen) == 8
    client.close()
    client.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "burnish-sdk"]


def test_a_proxy_that_is_none_is_told(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "nonsense://x")
    with Client(fake.url, TOKEN) as client, pytest.raises(NoHttp, match="check HTTP_PROXY"):
        client.signals.counts()
    with Client(fake.url, TOKEN, Options(trust_env=False)) as client:
        assert client.request("GET", "/things") == {}


def test_a_header_that_is_none_is_told_without_its_value(fake: Fake, client: Client) -> None:
    for value in ("hunter2\r\nX-Other: b", "hunter2\x00", "hunter2\u20ac"):
        with pytest.raises(ConfigurationError) as told:
            client.request("GET", "/things", headers={"X-Mine": value})
        assert "hunter2" not in str(told.value)
    assert not fake.seen


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0-OpenSSH_9.6\r\n", b"\x00" * 50_000, b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\n" * 9]
)
def test_what_speaks_no_http_at_all(raw: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(raw)

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with Client(url, TOKEN, Options(retry=NEVER)) as client, pytest.raises(Unreachable) as told:
            client.signals.counts()
        thread.join()
    assert len(str(told.value)) < 500


def test_a_type_that_is_not_told_is_no_type_that_is_wrong(fake: Fake, client: Client) -> None:
    fake.reply = lambda _: Reply({"a": 1}, headers={"Content-Type": ""})
    assert client.request("GET", "/things") == {"a": 1}


async def test_a_call_that_is_cancelled_ends(fake: Fake) -> None:
    hold = threading.Event()

    def held(_: Seen) -> Reply:
        hold.wait(10)
        return Reply()

    fake.reply = held
    async with AsyncClient(fake.url, TOKEN, FAST) as client:
        task = asyncio.create_task(client.signals.counts())
        while not fake.seen:
            await asyncio.sleep(0.005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    hold.set()
