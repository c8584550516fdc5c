"""`/v2`: agents saved, reverted and refined through the gateway, each row of the status table, and what is written."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
import pytest
import pytest_asyncio

import services.agents.app
import services.gateway.app
from libs.auth.signing import SigningKey
from libs.auth.tokens import mint
from libs.embedded import ports
from libs.llm.base import NOTHING_USED, Model, ModelError, ModelReply, ModelRequest, Usage
from libs.service_kit.service import Service
from libs.service_kit.testing import Installation
from services.agents.domain.lint import lint
from services.agents.domain.mapping import SkillPackBuilder
from services.agents.settings import Settings as AgentsSettings
from services.agents.tests.sound_packs import FAULTS, sound
from services.agents.tests.test_mapping import golden
from services.gateway.routers import agents as router
from tests.api.conftest import gateway_settings

FLAG = "/v2/flags/rollout/ai_agent_refine"
Answer = Callable[[ModelRequest], Any]


class Scripted:
    """A model whose answer the test gives: data, or an error to raise."""

    provider, name = "offline", "scripted-1"

    def __init__(self, answer: Answer, usd: str = "0") -> None:
        self.answer = answer
        self.usd = Decimal(usd)
        self.calls = 0

    def most_usd(self, request: ModelRequest) -> Decimal:
        return self.usd

    async def complete(self, request: ModelRequest) -> ModelReply:
        self.calls += 1
        data = self.answer(request)
        if isinstance(data, Exception):
            raise data
        return ModelReply(
            text=json.dumps(data), data=data, usage=self.used(), model=self.name, provider=self.provider, latency_ms=1
        )

    def used(self) -> Usage:
        return Usage(input_tokens=10, output_tokens=2, usd=self.usd) if self.usd else NOTHING_USED


class Agents:
    """The agents service behind one or more gateways, with clients of every kind."""

    def __init__(self, installation: Installation, key: SigningKey, keys: Path, folder: Path) -> None:
        self.installation = installation
        self.folder = folder
        self._key = key
        self._keys = keys
        self.stack = AsyncExitStack()

    async def start(self, model: Model | None = None, **settings: Any) -> Agents:
        """Agents and a gateway; with a model of the test's own, where there is one."""
        await self.start_agents(model, **settings)
        self.gateway = await self.another_gateway()
        return self

    async def start_agents(self, model: Model | None = None, **settings: Any) -> None:
        """The agents service alone."""
        told = {"agents_engine_folder": self.folder, "agents_sweep_every_s": 0.2, **settings}
        made = AgentsSettings(**self.installation.settings("agents"), **told)
        opener: Any = {"opener": lambda provider, name: model} if model else {}
        self.agents = await self._run(services.agents.app.build(made, **opener))

    async def another_gateway(self) -> Service:
        return await self._run(services.gateway.app.build(gateway_settings(self.installation, self._keys)))

    async def _run(self, service: Service) -> Service:
        await service.start()
        self.stack.push_async_callback(service.close)
        return service

    async def client(self, gateway: Service | None = None, **claims: Any) -> httpx.AsyncClient:
        """By default an admin of the organisation `desk` with every workspace."""
        said = {"roles": ["admin"], "workspaces": "*", "organization": "desk", **claims}
        return await self.bare(gateway, Authorization=f"Bearer {mint(self._key, said.pop('subject', 'ada'), **said)}")

    async def bare(self, gateway: Service | None = None, **headers: str) -> httpx.AsyncClient:
        base = f"http://127.0.0.1:{(gateway or self.gateway).http_port}"
        client = httpx.AsyncClient(base_url=base, headers=headers, timeout=30, trust_env=False)
        return await self.stack.enter_async_context(client)

    def engine_log(self) -> str:
        """What the engine was asked to change."""
        path = self.folder / "requests.log"
        return path.read_text() if path.exists() else ""

    def executed(self, vendor_id: str) -> dict[str, Any]:
        """What the engine executes."""
        found: dict[str, Any] = json.loads((self.folder / "agents" / f"{vendor_id}.json").read_text())
        return found


@pytest_asyncio.fixture
async def made(installation: Installation, key: SigningKey, keys: Path, tmp_path: Path) -> AsyncIterator[Agents]:
    agents = Agents(installation, key, keys, tmp_path / "engine")
    async with agents.stack:
        yield agents


def catalog_of(pack: Mapping[str, Any], company: str = "acme") -> dict[str, Any]:
    actions = [action for each in pack["capabilities"] for action in each.get("actions", [])]
    sources = {source["kb_id"] for each in pack["capabilities"] for source in each.get("sources", [])}
    tools = [{"tool_id": each["tool_id"], "name": each["name"], "args": {}} for each in actions]
    return {"company_id": company, "tools": tools, "knowledge": [{"kb_id": each} for each in sorted(sources)]}


async def an_agent(client: httpx.AsyncClient, pack: dict[str, Any]) -> dict[str, Any]:
    assert (await client.put("/v2/ai_agent_catalog", json=catalog_of(pack))).status_code == 200
    created = await client.post("/v2/ai_agents", json={"company_id": "acme", **pack})
    assert created.status_code == 201, created.text
    found: dict[str, Any] = created.json()["data"]
    return found


def pack_in(agent: dict[str, Any]) -> dict[str, Any]:
    return {block: agent["parameters"][block] for block in ("profile", "capabilities", "routing")}


def messages(response: httpx.Response) -> list[str]:
    found: list[str] = response.json()["error"]["messages"]
    return found


# --- saving -------------------------------------------------------------------------------------------------------


async def test_an_agent_is_created_read_saved_and_reverted(made: Agents) -> None:
    client = await (await made.start()).client()
    pack = sound(Random(1))
    agent = await an_agent(client, pack)
    assert agent["lock_version"] == 1
    url = f"/v2/ai_agents/{agent['id']}"
    executed = made.executed(agent["vendor_ai_agent_id"])
    assert executed["skill_pack"] == SkillPackBuilder().build(pack_in(agent))
    assert executed["version"] == 1

    profile = {**pack["profile"], "tone": "formal", "x": 1.0}
    saved = await client.patch(url, json={"profile": profile, "lock_version": 1})
    assert saved.status_code == 200
    assert saved.headers["etag"] == '"2"'
    assert pack_in(saved.json()["data"])["capabilities"] == pack_in(agent)["capabilities"], "absent blocks stay"
    assert '"x":1.0' in saved.text, "numbers stay as they were written"
    assert made.executed(agent["vendor_ai_agent_id"])["skill_pack"]["tone_of_voice"] == "formal"

    reverted = await client.post(f"{url}/revert", json={"version": 1}, headers={"If-Match": '"2"'})
    assert reverted.status_code == 200
    assert pack_in(reverted.json()["data"]) == pack_in(agent)
    versions = (await client.get(f"{url}/versions")).json()["data"]
    assert [(each["version"], each["action"], each["actor"]) for each in versions] == [
        (3, "revert", "ada"),
        (2, "update", "ada"),
        (1, "create", "ada"),
    ]
    second = (await client.get(f"{url}/versions/2")).json()["data"]
    assert second["before"]["profile"] == pack["profile"]
    assert second["after"]["profile"] == profile
    listed = (await client.get("/v2/ai_agents")).json()
    assert [(each["id"], each["lock_version"]) for each in listed["data"]] == [(agent["id"], 3)]


async def test_a_save_needs_its_version_and_tells_what_changed(made: Agents) -> None:
    client = await (await made.start()).client()
    pack = sound(Random(2))
    agent = await an_agent(client, pack)
    url = f"/v2/ai_agents/{agent['id']}"
    assert (await client.patch(url, json={"profile": {}})).status_code == 428
    assert (
        await client.patch(url, json={"profile": {}, "lock_version": 1}, headers={"If-Match": '"2"'})
    ).status_code == 400
    first = {**pack["profile"], "tone": "brisk"}
    assert (await client.patch(url, json={"profile": first, "lock_version": 1})).status_code == 200
    stale = await client.patch(url, json={"routing": [], "lock_version": 1})
    assert stale.status_code == 409
    assert stale.json()["error"]["lock_version"] == 2
    assert stale.json()["error"]["since"] == [
        {"version": 2, "action": "update", "actor": "ada"},
        {"changed": ["profile.tone"]},
    ]


async def test_of_racing_saves_one_wins(made: Agents) -> None:
    client = await (await made.start()).client()
    pack = sound(Random(3))
    agent = await an_agent(client, pack)
    url = f"/v2/ai_agents/{agent['id']}"

    async def save(number: int) -> int:
        body = {"profile": {**pack["profile"], "goals": f"goal {number}"}, "lock_version": 1}
        return (await client.patch(url, json=body)).status_code

    assert sorted(await asyncio.gather(*(save(number) for number in range(6)))) == [200, *[409] * 5]
    stored = (await client.get(url)).json()["data"]
    assert made.executed(agent["vendor_ai_agent_id"])["skill_pack"] == SkillPackBuilder().build(pack_in(stored))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"routing": [{"id": "r", "when": {"body_contains": "x"}, "to": "nowhere"}]}, "routing[0].to"),
        ({"routing": [{"id": "r", "from": "gone", "to": "human"}]}, "routing[0].from"),
        ({"routing": [{"id": "r", "when": {"action": "none"}, "to": "human"}]}, "routing[0].when.action"),
        ({"capabilities": [{"id": "c", "actions": [{"tool_id": "unknown"}]}]}, "capabilities[0].actions[0].tool_id"),
        ({"capabilities": [{"id": "c", "sources": [{"kb_id": "unknown"}]}]}, "capabilities[0].sources[0].kb_id"),
        ({"capabilities": [{"id": "c", "milestone_action_map": {"m": "none"}}]}, "milestone_action_map['m']"),
        ({"capabilities": [{"id": "c", "milestones": "all"}]}, "capabilities.0.milestones"),
        ({"capabilities": "all"}, "capabilities"),
        ({"tools": []}, "tools"),
    ],
)
async def test_what_a_pack_refers_to_must_exist(made: Agents, change: dict[str, Any], where: str) -> None:
    client = await (await made.start()).client()
    agent = await an_agent(client, sound(Random(4)))
    before = made.engine_log()
    refused = await client.patch(f"/v2/ai_agents/{agent['id']}", json={**change, "lock_version": 1})
    assert refused.status_code == 400
    assert where.replace(".0.", "[0].") in messages(refused)[0].replace(".0.", "[0].")
    assert (await client.get(f"/v2/ai_agents/{agent['id']}")).json()["data"] == agent
    assert made.engine_log() == before, "nothing was pushed"


async def test_what_the_engine_refuses_is_not_saved(made: Agents) -> None:
    client = await (await made.start()).client()
    pack = {block: value for block, value in golden("capability_pack").items() if block != "x-plan"}
    agent = await an_agent(client, pack)
    stores = {each["vector_store"]["id"] for each in pack_in(agent)["capabilities"]}
    assert {path.stem for path in (made.folder / "stores").iterdir()} == stores
    made.folder.rename(made.folder.with_name("away"))
    made.folder.write_text("a disk in trouble")
    capabilities = [{**each, "sources": each["sources"][:1]} for each in pack["capabilities"]]
    failed = await client.patch(f"/v2/ai_agents/{agent['id']}", json={"capabilities": capabilities, "lock_version": 1})
    assert (failed.status_code, messages(failed)) == (422, ["Failed to sync AI Agent to AI Service"])
    assert (await client.get(f"/v2/ai_agents/{agent['id']}")).json()["data"] == agent
    made.folder.unlink()
    made.folder.with_name("away").rename(made.folder)
    async with asyncio.timeout(10):
        while await pushes(made):
            await asyncio.sleep(0.1)
    assert {path.stem for path in (made.folder / "stores").iterdir()} == stores, "no store is left over"
    assert made.executed(agent["vendor_ai_agent_id"])["version"] == 1


async def pushes(made: Agents) -> int:
    conn = await asyncpg.connect(made.installation.admin_dsn)
    try:
        await conn.execute("SET burnish.workspaces = '*'")
        return int(await conn.fetchval("SELECT count(*) FROM agents.agent_pushes"))
    finally:
        await conn.close()


async def test_the_same_request_again_makes_no_second_agent(made: Agents) -> None:
    client = await (await made.start()).client()
    pack = sound(Random(5))
    await client.put("/v2/ai_agent_catalog", json=catalog_of(pack))
    body, headers = {"company_id": "acme", **pack}, {"Idempotency-Key": "once"}
    answers = [await client.post("/v2/ai_agents", json=body, headers=headers) for _ in range(2)]
    assert answers[0].json()["data"]["id"] == answers[1].json()["data"]["id"]
    assert (await client.get("/v2/ai_agents")).json()["total"] == 1


@pytest.mark.parametrize("what", ["save", "creation"])
async def test_a_kill_between_push_and_commit_is_repaired(
    made: Agents, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "SAVE_S", 3.0)
    client = await (await made.start()).client()
    pack = sound(Random(6))
    agent = await an_agent(client, pack)
    await made.agents.close()
    process = await dying(made)
    if what == "save":
        profile = {**pack["profile"], "tone": "never committed"}
        answer = await client.patch(f"/v2/ai_agents/{agent['id']}", json={"profile": profile, "lock_version": 1})
    else:
        answer = await client.post("/v2/ai_agents", json={"company_id": "acme", **pack})
    assert answer.status_code == 503
    assert await process.wait() == -signal.SIGKILL
    kept = [json.loads(path.read_text()) for path in (made.folder / "agents").glob("*.json")]
    assert (len(kept), max(each["version"] for each in kept)) == ((1, 2) if what == "save" else (2, 1))
    await made.start_agents()
    async with asyncio.timeout(20):
        while await pushes(made):
            await asyncio.sleep(0.1)
    stored = (await client.get(f"/v2/ai_agents/{agent['id']}")).json()["data"]
    assert stored == agent
    (only,) = [json.loads(path.read_text()) for path in (made.folder / "agents").glob("*.json")]
    assert (only["version"], only["skill_pack"]) == (1, SkillPackBuilder().build(pack_in(agent)))


async def dying(made: Agents) -> asyncio.subprocess.Process:
    """The agents service as a process that is killed after its next push, once it is ready."""
    told = {**made.installation.settings("agents"), "agents_engine_folder": made.folder, "http_port": ports.free_port()}
    environment = {f"BURNISH_{name.upper()}": value for name, value in told.items() if not isinstance(value, tuple)}
    environment |= {"BURNISH_FAULTS": "push_commit:1", "BURNISH_AGENTS_SWEEP_EVERY_S": "100"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "services.agents"),
        env=os.environ | {name: str(value) for name, value in environment.items()},
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(30), httpx.AsyncClient(trust_env=False) as client:
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if (await client.get(f"http://127.0.0.1:{told['http_port']}/health/ready")).status_code == 200:
                    return process
            await asyncio.sleep(0.1)


# --- refining -----------------------------------------------------------------------------------------------------


async def refinable(made: Agents, pack: dict[str, Any]) -> tuple[httpx.AsyncClient, dict[str, Any]]:
    client = await made.client()
    agent = await an_agent(client, sound(Random(7)))
    await client.put("/v2/ai_agent_catalog", json=catalog_of(pack))
    assert (await client.put(FLAG, json={"enabled": True})).json()["enabled"] is True
    return client, agent


async def refine(
    client: httpx.AsyncClient, agent: dict[str, Any], pack: Any, said: str = "Check it", **more: Any
) -> Any:
    body = {"user_message": said, "ai_agent": pack, **more}
    return await client.post(f"/v2/ai_agents/{agent['id']}/refine", json=body)


async def test_a_broken_pack_is_mended_and_nothing_is_written(made: Agents) -> None:
    pack = sound(Random(8))
    FAULTS["gate"][0](Random(1), pack)
    client, agent = await refinable(await made.start(), pack)
    rows, log = await everything(made), made.engine_log()
    for _ in range(3):
        answer = await refine(client, agent, pack, "find potential problems in my configuration")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
    data = answer.json()["data"]
    assert "never said" in data["reply"], "what is wrong is named"
    assert len(data["options"]) >= 2
    assert len({json.dumps(option["updated_ai_agent"]) for option in data["options"]}) == len(data["options"])
    for option in data["options"]:
        assert lint(SkillPackBuilder().build(option["updated_ai_agent"])) == []
    assert await everything(made) == rows
    assert made.engine_log() == log
    saved = await client.patch(
        f"/v2/ai_agents/{agent['id']}",
        json={**data["options"][0]["updated_ai_agent"], "lock_version": 1, "refine": {"turn_id": "t-1", "option": 1}},
    )
    assert saved.status_code == 200, saved.text
    version = (await client.get(f"/v2/ai_agents/{agent['id']}/versions")).json()["data"][0]
    assert version["refine"] == {"turn_id": "t-1", "option": 1}


async def everything(made: Agents) -> dict[str, Any]:
    """How many rows each table of each schema has, and how many messages each stream."""
    conn = await asyncpg.connect(made.installation.admin_dsn)
    try:
        await conn.execute("SET burnish.workspaces = '*'")
        tables = await conn.fetch(
            "SELECT schemaname, relname FROM pg_stat_user_tables WHERE relname <> 'recent_requests' ORDER BY 1, 2"
        )
        return {
            f"{row['schemaname']}.{row['relname']}": await conn.fetchval(
                f'SELECT count(*) FROM "{row["schemaname"]}"."{row["relname"]}"'
            )
            for row in tables
        }
    finally:
        await conn.close()


async def test_a_clean_audit_says_so(made: Agents) -> None:
    pack = sound(Random(9))
    client, agent = await refinable(await made.start(), pack)
    data = (await refine(client, agent, pack, "Review my configuration and find potential issues")).json()["data"]
    assert "no problems" in data["reply"]
    assert data["options"] == []


def to_human(keyword: str) -> dict[str, Any]:
    return {"when": {"body_contains": keyword}, "switch_to": "human"}


@pytest.mark.parametrize(
    ("said", "path", "value"),
    [
        ("Make the tone more formal", "/tone_of_voice", "formal"),
        ("Could you sound less formal please?", "/tone_of_voice", "casual"),
        (
            'Route "cash back" to the human team',
            "/routing_rules/-",
            {"when": {"body_contains": "cash back"}, "switch_to": "human"},
        ),
        (
            "Make it faster to escalate to a human agent",
            "/routing_rules/-",
            {"when": {"body_contains": "human"}, "switch_to": "human"},
        ),
        ("Replace 'Send one reply' with 'Give one reply'", None, None),
    ],
)
async def test_simple_requests_by_rule(made: Agents, said: str, path: str | None, value: Any) -> None:
    pack = sound(Random(10))
    pack["profile"]["tone"] = "plain"
    client, agent = await refinable(await made.start(), pack)
    data = (await refine(client, agent, pack, said)).json()["data"]
    assert data["options"], data
    assert "by rule" in data["reply"], "it says what it is"
    if path:
        assert data["options"][0]["patches"] == [{"op": "add", "path": path, "value": value}]
    assert lint(SkillPackBuilder().build(data["options"][0]["updated_ai_agent"])) == []


async def test_who_may_refine(made: Agents) -> None:
    pack = sound(Random(11))
    client, agent = await refinable(await made.start(), pack)
    assert (await refine(await made.bare(), agent, pack)).status_code == 401
    nobody = await refine(await made.client(organization=""), agent, pack)
    assert nobody.status_code == 403
    editor = await refine(await made.client(roles=["editor"]), agent, pack)
    assert (editor.status_code, messages(editor)) == (403, ["Permission denied"])
    for role in ("owner", "supervisor"):
        assert (await refine(await made.client(roles=[role]), agent, pack)).status_code == 200
    other = await refine(await made.client(organization="elsewhere"), agent, pack)
    assert (other.status_code, messages(other)) == (404, ["AI Agent not found"])
    assert (await (await made.client(organization="elsewhere")).get(f"/v2/ai_agents/{agent['id']}")).status_code == 404
    await client.put(FLAG, json={"enabled": False})
    off = await refine(client, agent, pack)
    assert (off.status_code, messages(off)) == (403, ["Permission denied"])


async def test_the_order_of_checks(made: Agents) -> None:
    """Each request is wrong in every way that comes later, too."""
    client, _ = await refinable(await made.start(), sound(Random(12)))
    nonsense = {"ai_agent": 7}
    url = f"/v2/ai_agents/{uuid4()}/refine"
    assert (await (await made.bare()).post(url, json=nonsense)).status_code == 401
    assert (await (await made.client(roles=[])).post(url, json=nonsense)).status_code == 403
    assert (await client.post(url, json=nonsense)).status_code == 400
    assert (await refine(client, {"id": uuid4()}, {"capabilities": []})).status_code == 404
    old = await client.post(
        "/v2/ai_agents", json={"company_id": "acme", "engine_version": 1, "capabilities": [{"id": "c"}]}
    )
    refused = await refine(client, old.json()["data"], {"capabilities": [{"id": "c"}]})
    assert (refused.status_code, messages(refused)) == (422, ["not_autonomous_agent"])
    while (limited := await client.post(url, json=nonsense)).status_code == 400:
        pass
    assert limited.status_code == 429


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"user_message": "x"},
        {"user_message": "", "ai_agent": {}},
        {"user_message": "x" * 4_001, "ai_agent": {}},
        {"user_message": "x", "ai_agent": []},
        {"user_message": "x", "ai_agent": {"capabilities": {}}},
        {"user_message": "x", "ai_agent": {"profile": {"name": 7}}},
        {"user_message": "x", "ai_agent": {"x": "a" * 262_144}},
        {"user_message": "x", "ai_agent": {}, "chat_history": [{"role": "user", "content": "x"}] * 11},
        {"user_message": "x", "ai_agent": {}, "chat_history": [{"role": "system", "content": "x"}]},
        {"user_message": "x", "ai_agent": {}, "chat_history": [{"role": "user", "content": ""}]},
        {"user_message": "x", "ai_agent": {}, "more": 1},
    ],
)
async def test_a_request_that_is_not_right(made: Agents, body: Any) -> None:
    client, agent = await refinable(await made.start(), sound(Random(13)))
    refused = await client.post(f"/v2/ai_agents/{agent['id']}/refine", json=body)
    assert refused.status_code == 400
    assert messages(refused)
    assert "aaaa" not in refused.text


async def test_two_gateways_share_the_limit_and_the_flag(made: Agents) -> None:
    pack = sound(Random(14))
    client, agent = await refinable(await made.start(), pack)
    other = await made.client(await made.another_gateway())
    answers = await asyncio.gather(*(refine(who, agent, pack) for who in [client, other] * 8))
    codes = [answer.status_code for answer in answers]
    assert (codes.count(200), codes.count(429)) == (10, 6)
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert (await other.get(FLAG)).json()["enabled"] is True
    elsewhere = await made.client(organization="elsewhere")
    assert (await refine(elsewhere, agent, pack)).status_code == 404, "another organisation has its own"


@pytest.mark.parametrize(
    "answer",
    [
        ModelError("overloaded", retryable=True),
        {"options": []},
        {"reply": ""},
        {"reply": 7},
        {"reply": "x", "options": "none"},
    ],
)
async def test_a_model_that_fails_leaves_a_fallback_reply(made: Agents, answer: Any) -> None:
    model = Scripted(lambda _: answer)
    pack = sound(Random(15))
    client, agent = await refinable(await made.start(model), pack)
    data = (await refine(client, agent, pack)).json()["data"]
    assert "unchanged" in data["reply"]
    assert data["options"] == []
    assert model.calls == 1, "no automatic retry"


async def test_paid_turns_are_within_their_budget_and_leave_no_word(made: Agents) -> None:
    model = Scripted(lambda _: {"reply": "a secret reply"}, usd="0.40")
    pack = sound(Random(20))
    client, agent = await refinable(await made.start(model), pack)
    await asyncio.gather(*(refine(client, agent, pack, "a secret message") for _ in range(6)))
    for _ in range(3):
        last = (await refine(client, agent, pack, "a secret message")).json()["data"]
    assert last["reply"] != "a secret reply", "the budget of 1 USD an agent and day is used up"
    assert model.calls == 3, "over the limit by less than one call"
    conn = await asyncpg.connect(made.installation.admin_dsn)
    rows = await conn.fetch("SELECT usd, touchpoint_id, row_to_json(c)::text AS row FROM agents.model_calls AS c")
    await conn.close()
    assert [(row["usd"], row["touchpoint_id"]) for row in rows] == [(Decimal("0.40"), f"agent-{agent['id']}")] * 3
    assert not any("secret" in row["row"] for row in rows)


async def test_what_a_model_may_not_do_is_undone_and_said(made: Agents) -> None:
    def hostile(_: ModelRequest) -> Any:
        bad = [
            {"op": "replace", "path": "/skills/0/id", "value": "mine"},
            {"op": "add", "path": "/skills/0/actions/-", "value": {"id": "rm", "name": "rm_rf", "args": {}}},
            {"op": "replace", "path": "/tone_of_voice", "value": "formal"},
        ]
        return {
            "reply": "<b>done</b>",
            "options": [
                {"patches": bad},
                {"patches": [{"op": "replace", "path": "/skills", "value": []}]},
                {"patches": bad},
            ],
        }

    pack = sound(Random(16))
    client, agent = await refinable(await made.start(Scripted(hostile)), pack)
    data = (await refine(client, agent, pack)).json()["data"]
    assert len(data["options"]) == 1, "one is empty, one the same as another"
    updated = data["options"][0]["updated_ai_agent"]
    assert updated["profile"]["tone"] == "formal"
    assert updated["capabilities"][0]["id"] == pack["capabilities"][0]["id"]
    told = "\n".join(data["warnings"])
    assert "never changes" in told
    assert "there is no tool 'rm'" in told
    assert "no skills would be left" in told


async def test_an_answer_that_does_not_come(made: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "REFINE_S", 0.5)

    class Slow(Scripted):
        async def complete(self, request: ModelRequest) -> ModelReply:
            await asyncio.sleep(3)
            return await super().complete(request)

    pack = sound(Random(17))
    client, agent = await refinable(await made.start(Slow(lambda _: {"reply": "late"})), pack)
    late = await refine(client, agent, pack)
    assert (late.status_code, messages(late)) == (422, ["Failed to refine AI Agent"])


async def test_saving_works_without_a_model(made: Agents) -> None:
    client = await (await made.start(Scripted(lambda _: ModelError("gone", retryable=False)))).client()
    agent = await an_agent(client, sound(Random(18)))
    assert agent["lock_version"] == 1


async def test_a_conversation_before_and_after(made: Agents) -> None:
    pack = sound(Random(19))
    FAULTS["gate"][0](Random(2), pack)
    client, agent = await refinable(await made.start(), pack)
    option = (await refine(client, agent, pack)).json()["data"]["options"][0]["updated_ai_agent"]
    broken = next(each for each in pack["capabilities"] if each["actions"][1]["gate"] == "never said")
    asked = [f"Please {action['name'].replace('_', ' ')}" for action in broken["actions"]]
    said = [f"I have a question about {broken['id']}.", *asked, *asked]
    log = made.engine_log()

    async def kinds(given: Any) -> list[str]:
        body = {"messages": said, "ai_agent": given}
        answer = await client.post(f"/v2/ai_agents/{agent['id']}/preview", json=body)
        return [event["kind"] for turn in answer.json()["data"]["turns"] for event in turn["events"]]

    assert "completed" not in await kinds(pack)
    assert "completed" in await kinds(option)
    assert made.engine_log() == log
