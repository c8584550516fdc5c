"""The gateway over HTTP: the real service on real Postgres and NATS."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import nats
import pytest
from nats.aio.client import Client

from libs.auth.statements import StatementKey, holds
from libs.contracts.envelope import Event
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.queries.normaliser import CountSignals
from libs.contracts.queries.pattern_detector import GetDetectorStatus
from libs.contracts.queries.registry import GetPrompt
from libs.contracts.versions import LedgerHead, LivePrompt
from libs.service_kit.errors import Refused
from libs.service_kit.queries import Asker, Responder
from libs.service_kit.testing import Installation, event_of
from services.registry.store import entries
from services.registry.tests.support import FIRST, SECOND, SKILL, Repository, approved, in_table
from tests.api.conftest import Api

ROOT = "/api/refinement"
SIGNAL = {"touchpoint_id": "summary", "signal_type": "flag", "payload": {"text": "canary-7", "expected": "b"}}


async def observed(installation: Installation, count: int) -> list[SignalObservedV1]:
    """The signals that arrived on the bus, when there are `count` of them."""
    client = await installation.bus_admin()
    try:
        subscription = await client.jetstream().subscribe("refinement.signal.observed.v1", ordered_consumer=True)
        messages = [await subscription.next_msg(timeout=10) for _ in range(count)]
        return [Event[SignalObservedV1].model_validate_json(message.data).data for message in messages]
    finally:
        await client.close()


async def register(client: httpx.AsyncClient, *touchpoints: Any) -> None:
    body = {"touchpoints": [each.model_dump(mode="json") for each in touchpoints]}
    response = await client.put(f"{ROOT}/touchpoints", json=body)
    assert response.status_code == 200, response.text


def is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code), body
    return body


# --- push --------------------------------------------------------------------------------------------------


async def test_a_pushed_batch_is_on_the_bus_once_for_one_idempotency_key(api: Api, installation: Installation) -> None:
    client = await api.client(subject="desk", scopes=["signals:write"])
    body = {"signals": [SIGNAL, {**SIGNAL, "actor_id": "u1", "severity": "high", "new_field": 1}]}
    answers = [await client.post(f"{ROOT}/signals", json=body, headers={"Idempotency-Key": "k1"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    assert (await client.post(f"{ROOT}/signals", json=SIGNAL)).status_code == 202
    first, second, third = await observed(installation, 3)
    assert answers[0].json() == {"accepted": 2, "signal_ids": [str(first.signal_id), str(second.signal_id)]}
    assert (first.source_key, second.source_key) == ("push:desk:k1:0", "push:desk:k1:1")
    assert (first.actor_id, first.actor_kind) == ("desk", "machine")
    assert (second.actor_id, second.actor_kind, second.severity) == ("u1", "human", "high")
    assert first.evidence_ref.id == first.source_key
    assert third.source_key not in (first.source_key, second.source_key)
    other = await client.post(f"{ROOT}/signals", json=SIGNAL, headers={"Idempotency-Key": "k1"})
    is_problem(other, 422, "idempotency_key_reused")


async def test_what_is_wrong_with_a_signal_is_told_by_index_and_field_and_nothing_is_taken(api: Api) -> None:
    client = await api.admin()
    large = {**SIGNAL, "payload": {"text": "canary-7", "rest": "x" * 70_000}}
    body = {"signals": [SIGNAL, {**SIGNAL, "signal_type": "canary-7"}, 5, large, {"payload": {}}]}
    response = await client.post(f"{ROOT}/signals", json=body)
    problem = is_problem(response, 422, "invalid")
    assert [error["loc"] for error in problem["errors"]] == [
        "signals[1].signal_type",
        "signals[2]",
        "signals[3].payload",
        "signals[4].touchpoint_id",
        "signals[4].signal_type",
    ]
    assert "limit is 65536" in problem["errors"][2]["message"]
    assert "canary-7" not in response.text
    async with api.service.db.connection() as conn:
        assert await conn.fetchval("SELECT count(*) FROM outbox WHERE subject LIKE '%signal%'") == 0


NO_BATCH: dict[str, tuple[bytes, int, str]] = {
    "broken": (b"{", 422, "not_json"),
    "list": (b"[]", 422, "invalid"),
    "empty": (b'{"signals": []}', 422, "invalid"),
    "deep": (b"[" * 100_000, 422, "not_json"),
    "nan": (b'{"a": NaN}', 422, "not_json"),
    "large": (b" " * (4 * 1024 * 1024 + 1), 413, "too_large"),
    "many": (json.dumps({"signals": [SIGNAL] * 1_001}).encode(), 413, "too_many"),
}


async def test_a_body_that_is_no_batch_is_refused(api: Api) -> None:
    client = await api.admin()
    for content, status, code in NO_BATCH.values():
        is_problem(await client.post(f"{ROOT}/signals", content=content), status, code)


async def test_a_large_body_of_unknown_length_is_refused_while_it_comes(api: Api) -> None:
    async def endless() -> Any:
        for _ in range(100):
            yield b" " * 65_536

    client = await api.admin()
    is_problem(await client.post(f"{ROOT}/signals", content=endless()), 413, "too_large")


async def test_nul_characters_are_left_out(api: Api, installation: Installation) -> None:
    client = await api.admin()
    await client.post(f"{ROOT}/signals", json={**SIGNAL, "actor_id": "u\x001", "payload": {"text": "a\x00b"}})
    (signal,) = await observed(installation, 1)
    assert (signal.actor_id, signal.payload.text) == ("u1", "ab")


async def test_concurrent_pushes_under_one_key_are_one(api: Api, installation: Installation) -> None:
    client = await api.admin()
    answers = await asyncio.gather(
        *(client.post(f"{ROOT}/signals", json=SIGNAL, headers={"Idempotency-Key": "same"}) for _ in range(6))
    )
    assert len({answer.text for answer in answers}) == 1
    await client.post(f"{ROOT}/signals", json=SIGNAL, headers={"Idempotency-Key": "last"})
    keys = [signal.source_key for signal in await observed(installation, 2)]
    assert keys == ["push:ada:same:0", "push:ada:last:0"]


# --- versions ----------------------------------------------------------------------------------------------


async def test_versions_are_recorded_activated_and_rolled_back_over_http(api: Api) -> None:
    client = await api.admin()
    await register(client, in_table())
    at = f"{ROOT}/touchpoints/summary"
    live = await client.get(f"{at}/live")
    first = live.json()["version_ref"]
    etag = live.headers["etag"]
    assert (await client.get(f"{at}/live", headers={"If-None-Match": etag})).status_code == 304
    recorded = await client.post(f"{at}/versions", json={"parts": [{"path": "prompt", "text": SECOND}], "note": "n"})
    assert recorded.status_code == 201
    second = recorded.json()["version_ref"]
    text = await client.get(f"{at}/versions/{second}")
    assert text.json()["parts"][0]["text"] == SECOND

    activation = {"version_ref": second, "expected_live": first, "reason": "better"}
    activated = await client.post(f"{at}/activate", json=activation)
    assert (activated.status_code, activated.json()["live"]) == (200, True)
    problem = is_problem(await client.post(f"{at}/activate", json=activation), 409, "conflict")
    assert problem["live"]["version_ref"] == second
    changed = await client.get(f"{at}/live", headers={"If-None-Match": etag})
    assert (changed.status_code, changed.json()["version_ref"]) == (200, second)
    then = await client.get(f"{at}/live", params={"at": live.json()["activated_at"]})
    assert then.json()["version_ref"] == first
    never = await client.get(f"{at}/live", params={"at": "2020-01-01T00:00:00Z"})
    is_problem(never, 404, "no_live_version")

    rolled = await client.post(f"{at}/rollback", json={"reason": "worse"})
    assert (rolled.json()["tier"], rolled.json()["activation"]["version_ref"]) == (1, first)
    history = (await client.get(f"{at}/versions")).json()["history"]
    assert [row["version_ref"] for row in history] == [first, second, first]
    entries = (await client.get(f"{ROOT}/ledger", params={"touchpoint_id": "summary"})).json()["entries"]
    assert [entry["kind"] for entry in entries] == ["rolled_back", "activated", "registered"]
    assert entries[0]["by"] == "ada"
    assert (await client.get(f"{ROOT}/ledger/verify")).json()["intact"] is True
    page = (await client.get(f"{ROOT}/ledger", params={"limit": 2})).json()
    assert [entry["seq"] for entry in page["entries"]] == [3, 2]
    assert page["next"] == 2


async def test_the_ledgers_head_is_kept_and_the_ledger_goes_through_it(api: Api, ledger_key: StatementKey) -> None:
    client = await api.admin()
    await register(client, in_table())
    head = LedgerHead.model_validate_json((await client.get(f"{ROOT}/ledger/head")).content)
    assert (head.seq, head.public_key) == (1, ledger_key.public)
    assert holds(ledger_key.public, str(head.signature), head.statement())
    kept: dict[str, Any] = {"head_seq": head.seq, "head_sha256": head.entry_sha256}
    whole = (await client.get(f"{ROOT}/ledger/verify", params=kept)).json()
    assert (whole["intact"], whole["next"], whole["entries"]) == (True, None, 1)
    other = (await client.get(f"{ROOT}/ledger/verify", params={**kept, "head_sha256": "0" * 64})).json()
    assert (other["intact"], other["broken_at"], other["table"]) == (False, 1, "ledger_entries")
    is_problem(await client.get(f"{ROOT}/ledger/verify", params={"head_seq": 1}), 422, "invalid")
    is_problem(await client.get(f"{ROOT}/ledger/verify", params={"cursor": "x"}), 422, "invalid")
    for wrong in ({**kept, "head_seq": 2**63}, {**kept, "head_sha256": "x"}, {"cursor": "x" * 400}):
        assert (await client.get(f"{ROOT}/ledger/verify", params=wrong)).status_code == 422


async def test_a_prompt_in_git_is_planned_registered_and_rolled_back_by_proposal(
    api: Api, repository: Repository
) -> None:
    client = await api.admin()
    touchpoint = {
        "id": "support.intent",
        "scope": "global",
        "storage": {"adapter": "skill_file", "repository": str(repository.root), "paths": [SKILL]},
    }
    planned = await client.post(f"{ROOT}/touchpoints/plan", json={"touchpoints": [touchpoint]})
    assert planned.json()["touchpoints"][0]["action"] == "create"
    applied = await client.put(f"{ROOT}/touchpoints", json={"touchpoints": [touchpoint]})
    assert applied.status_code == 200
    again = await client.put(f"{ROOT}/touchpoints", json={"touchpoints": [touchpoint]})
    assert again.json()["touchpoints"][0] == {
        "touchpoint_id": "support.intent",
        "action": "unchanged",
        "revision": 1,
        "changes": [],
        "live": None,
        "content_sha256": None,
    }
    at = f"{ROOT}/touchpoints/support.intent"
    first = (await client.get(f"{at}/live")).json()["version_ref"]
    repository.commit(SKILL, SECOND)
    rollback = await client.post(f"{at}/rollback", json={"reason": "edited", "to_version": first})
    proposal = rollback.json()["proposal"]
    assert (rollback.json()["tier"], proposal["files"], proposal["drift"]["drifted"]) == (2, [SKILL], True)
    repository.apply(proposal["diff"])
    confirmed = await client.post(f"{at}/confirm")
    assert [intent["state"] for intent in confirmed.json()["intents"]] == ["confirmed"]
    nothing = await client.post(f"{at}/rollback", json={"reason": "x", "to_version": first})
    is_problem(nothing, 409, "nothing_to_change")
    for verb, body in (
        ("activate", {"version_ref": first, "expected_live": first, "reason": "x"}),
        ("versions", {"parts": [{"path": "a", "text": "b"}]}),
    ):
        is_problem(await client.post(f"{at}/{verb}", json=body), 409, "tier_2")


async def test_a_bad_touchpoint_is_named_by_index_and_field(api: Api) -> None:
    client = await api.admin()
    broken = in_table().model_dump(mode="json") | {"scope": "galaxy", "colour": "red"}
    response = await client.put(f"{ROOT}/touchpoints", json={"touchpoints": [broken]})
    problem = is_problem(response, 422, "invalid")
    assert {error["loc"] for error in problem["errors"]} == {"touchpoints[0].scope", "touchpoints[0].colour"}
    refused = await client.put(
        f"{ROOT}/touchpoints", json={"touchpoints": [in_table(text=None).model_dump(mode="json")]}
    )
    problem = is_problem(refused, 422, "invalid_touchpoints")
    assert problem["errors"][0]["loc"] == "touchpoints[0].storage.initial_text"


async def test_requests_for_a_scan_and_a_detector_run_are_said(api: Api, repository: Repository, in_git: Any) -> None:
    client = await api.admin()
    await register(client, in_git)
    at = f"{ROOT}/touchpoints/support.intent"
    for path, body in (("scan", None), ("scan", {"scanner": "si_flag"}), ("detect", None)):
        response = await client.post(f"{at}/{path}", json=body)
        assert response.status_code == 202
        UUID(response.json()["request_id"])
    unknown = await client.post(f"{at}/scan", json={"scanner": "sql"})
    assert "si_flag" in is_problem(unknown, 422, "unknown_scanner")["detail"]
    is_problem(await client.post(f"{ROOT}/touchpoints/none/detect"), 404, "unknown_touchpoint")


# --- other services ----------------------------------------------------------------------------------------


AWAY: list[tuple[str, str, Any, str]] = [
    ("GET", "/signals", None, "normaliser"),
    ("GET", "/signals/counts", None, "normaliser"),
    ("GET", "/scans", None, "scanner"),
    ("GET", "/patterns", None, "pattern_detector"),
    ("GET", "/touchpoints/summary/patterns", None, "pattern_detector"),
    ("GET", f"/patterns/{uuid4()}", None, "pattern_detector"),
    ("GET", "/proposals", None, "proposal"),
    ("GET", f"/proposals/{uuid4()}", None, "proposal"),
    ("POST", f"/proposals/{uuid4()}/approve", {"content_sha256": "0" * 64}, "proposal"),
    ("GET", "/suites", None, "ab_runner"),
    ("GET", f"/ab/{uuid4()}", None, "ab_runner"),
    ("GET", "/spending", None, "proposal"),
    (
        "PUT",
        "/touchpoints/summary/suite",
        {"cases": [{"case_id": "1", "input": "a", "expected": "b"}]},
        "ab_runner",
    ),
    ("POST", f"/dead-letters/scanner/{uuid4()}/replay", None, "scanner"),
]


async def test_a_service_that_is_away_is_named(api: Api) -> None:
    client = await api.admin()
    await register(client, in_table())
    for method, path, body, service in AWAY:
        response = await client.request(method, ROOT + path, json=body)
        assert is_problem(response, 503, "unavailable")["service"] == service
        assert response.headers["retry-after"] == "2"


async def test_dead_letters_are_listed_while_some_services_are_away(api: Api) -> None:
    client = await api.admin()
    answer = (await client.get(f"{ROOT}/dead-letters")).json()
    assert answer["dead_letters"] == []
    assert "registry" not in answer["unavailable"]
    assert "scanner" in answer["unavailable"]
    mine = await client.post(f"{ROOT}/dead-letters/registry/{uuid4()}/replay")
    is_problem(mine, 404, "not_found")
    is_problem(await client.post(f"{ROOT}/dead-letters/nobody/{uuid4()}/replay"), 404, "unknown_service")


async def test_answers_and_refusals_of_other_services_come_through(api: Api, installation: Installation) -> None:
    async def count(query: CountSignals) -> Any:
        return query.reply.model_validate(
            {"counts": [{"touchpoint_id": query.touchpoint_id, "stored": 3, "unprocessed": 1, "rejected": 0}]}
        )

    busy = False

    async def status(query: GetDetectorStatus) -> Any:
        if busy:
            raise Refused("busy", "not now", status=409)
        return query.reply.model_validate({"signals": 3, "unprocessed": 1, "patterns": 0})

    client = await api.admin()
    await register(client, in_table())
    others = [await connect(installation, name) for name in ("normaliser", "pattern_detector")]
    counting = Responder(CountSignals.subject, CountSignals, count, {})
    detector = Responder(GetDetectorStatus.subject, GetDetectorStatus, status, {})
    try:
        await counting.start(others[0])
        await detector.start(others[1])
        await asyncio.gather(*(other.flush() for other in others))
        answer = (await client.get(f"{ROOT}/touchpoints/summary/status")).json()
        assert (answer["signals"]["stored"], answer["detector"]["signals"]) == (3, 3)
        assert answer["live"]["live"] is True
        busy = True
        is_problem(await client.get(f"{ROOT}/touchpoints/summary/status"), 409, "busy")
    finally:
        for other in others:
            await other.close()


async def connect(installation: Installation, service: str) -> Client:
    settings = installation.settings(service)
    return await nats.connect(settings["nats_url"], user=settings["nats_user"], password=settings["nats_password"])


async def test_other_services_are_answered_with_the_live_prompt(api: Api, installation: Installation) -> None:
    await register(await api.admin(), in_table())
    client = await connect(installation, "proposal")
    try:
        reply = await Asker(lambda: client).ask(GetPrompt(touchpoint_id="summary"))
        assert reply.prompt.parts[0].text == FIRST
        with pytest.raises(Refused) as no:
            await Asker(lambda: client).ask(GetPrompt(touchpoint_id="none"))
        assert no.value.status == 404
    finally:
        await client.close()


async def test_an_approval_on_the_bus_waits_on_a_branch_and_is_live_once_it_is_merged(
    api: Api, installation: Installation, repository: Repository, in_git: Any
) -> None:
    client = await api.admin()
    await register(client, in_git)
    at = f"{ROOT}/touchpoints/support.intent"
    live = LivePrompt.model_validate_json((await client.get(f"{at}/live")).content)
    approval = approved("support.intent", live, SECOND)
    bus = await installation.bus_admin()
    try:
        for _ in range(2):
            await bus.jetstream().publish(approval.type, event_of(approval).encode())
    finally:
        await bus.close()

    async def intent() -> dict[str, Any] | None:
        found: list[dict[str, Any]] = (await client.get(f"{at}/intents")).json()["intents"]
        return next((each for each in found if each["state"] == "open"), None)

    async def switched() -> dict[str, Any] | None:
        prompt: dict[str, Any] = (await client.get(f"{at}/live")).json()
        return prompt if prompt["version_ref"] != live.version_ref else None

    opened = await eventually(intent)
    assert "+- refund: money back, please" in opened["diff"]
    repository.git("merge", "-q", opened["branch"])
    now = await eventually(switched)
    assert (now["content_sha256"], now["parts"][0]["text"]) == (approval.content_sha256, SECOND)
    entries = (await client.get(f"{ROOT}/ledger")).json()["entries"]
    assert [entry["kind"] for entry in entries] == ["activated", "confirmed", "intent", "registered"]
    assert entries[0]["proposal_id"] == str(approval.proposal_id)


async def eventually(look: Callable[[], Awaitable[dict[str, Any] | None]]) -> dict[str, Any]:
    """What `look` finds, within ten seconds."""
    async with asyncio.timeout(10):
        while (found := await look()) is None:
            await asyncio.sleep(0.05)
    return found


# --- failures ----------------------------------------------------------------------------------------------


async def test_an_unforeseen_failure_shows_nothing_of_what_was_sent(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("canary-7")

    monkeypatch.setattr(entries, "listed", broken)
    response = await (await api.admin()).get(f"{ROOT}/ledger")
    is_problem(response, 500, "failed")
    captured = capsys.readouterr()
    assert "api.failed" in captured.out
    assert "canary-7" not in response.text + captured.out + captured.err


async def test_a_database_that_is_away_is_named(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object, **__: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(entries, "listed", away)
    response = await (await api.admin()).get(f"{ROOT}/ledger")
    assert is_problem(response, 503, "unavailable")["service"] == "registry"


# --- the document ------------------------------------------------------------------------------------------


async def test_the_openapi_document_and_readiness_are_open_and_whole(api: Api) -> None:
    client = await api.bare()
    document = (await client.get("/openapi.json")).json()
    assert len(document["paths"]) >= 30
    assert document["security"] == [{"bearer": []}]
    ready = await client.get("/health/ready")
    assert ready.json()["checks"]["jwks"] == "ok"


async def test_the_docs_page_needs_no_other_host_and_no_other_file_is_open(api: Api) -> None:
    client = await api.bare()
    page = (await client.get("/docs")).text
    files = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert files
    assert all(file.startswith("/docs-files/") for file in files)
    for file in files:
        assert (await client.get(file)).status_code == 200
    assert (await client.get("/docs-files/redoc.standalone.js")).status_code == 401
