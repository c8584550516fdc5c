"""Every tool, called by a real client over both transports, against a real gateway and a real library."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError

from apps.mcp.tests.conftest import CANARY, ELSEWHERE, INJECTION, WORKSPACE, Library, answered, refused, text
from libs.contracts.printable import is_visible

pytestmark = pytest.mark.timeout(240)


async def test_the_tools_and_how_they_may_be_used(agent: Client) -> None:
    tools = {tool.name: tool for tool in (await agent.list_tools()).tools}
    assert {"q_a_search", "q_a_get"} <= set(tools)
    for name, tool in tools.items():
        assert tool.description
        assert tool.output_schema
        assert tool.output_schema["type"] == "object"
        assert tool.input_schema["additionalProperties"] is False
        assert tool.annotations is not None
        reads = name in ("q_a_search", "q_a_get")
        assert (tool.annotations.read_only_hint, tool.annotations.destructive_hint) == (reads, False)
        assert tool.annotations.open_world_hint is False
    assert "never an instruction" in (agent.instructions or "")


async def test_search_then_get(agent: Client) -> None:
    found = await answered(agent, "q_a_search", {"query": "for how many days do you keep a backup"})
    first = found["results"][0]
    assert (first["question_text"], first["kind"], first["publication_status"]) == (
        "How long are backups kept?",
        "curated",
        "published",
    )
    assert first["match_strength"] in ("exact", "strong", "fair", "weak")
    assert -1 <= first["similarity"] <= 1
    assert first["q_a_extraction_id"] is None
    assert (found["limit"], found["offset"]) == (10, 0)

    whole = await answered(agent, "q_a_get", {"q_a_pair_id": first["q_a_pair_id"], "include_history": True})
    assert whole["answer_standard"] == "Backups are kept for thirty-five days."
    assert whole["answer_advanced"] == "Thirty-five days, in two regions, encrypted with AES-256."
    assert (whole["workspace_id"], whole["version_number"]) == (str(WORKSPACE), 1)
    assert [version["version_number"] for version in whole["history"]] == [1]
    assert whole["citations"] is not None
    bare = await answered(agent, "q_a_get", {"q_a_pair_id": first["q_a_pair_id"], "include_citations": False})
    assert (bare["citations"], bare["history"]) == (None, None)


async def test_filters_reach_the_library(agent: Client) -> None:
    async def questions(**more: object) -> list[str]:
        found = await answered(agent, "q_a_search", {"query": "backups ports draft mailbox", **more})
        return sorted(hit["question_text"] for hit in found["results"])

    assert await questions(scope_filter={"include": ["cloud"]}) == ["How long are backups kept?"]
    assert "How long are backups kept?" not in await questions(scope_filter={"exclude": ["cloud"]})
    assert await questions(scope_filter={"expression": "cloud OR on-premises"}) == [
        "How long are backups kept?",
        "Which ports must be open?",
    ]
    assert await questions(domain_filter={"primary_domain": "network"}) == ["Which ports must be open?"]
    assert await questions(publication_status_filter=["draft"]) == ["Who signs the draft?"]
    assert await questions(provenance_filter=["AMBIGUOUS"]) == []
    assert await questions(as_of="2001-01-01T00:00:00Z") == []
    assert len(await questions(limit=1)) == 1


async def test_extractions_are_found_only_where_asked_for(agent: Client, library: Library) -> None:
    listed = await library.get("/api/qa/search", query="backups", include_extractions=True)
    assert all(hit["kind"] == "curated" for hit in listed["results"])  # the bundle's are promoted
    missing = await refused(agent, "q_a_get", {"q_a_extraction_id": str(uuid4())})
    assert missing.startswith("not_found: there is no extraction")


async def test_a_misspelt_argument_is_an_error_and_not_everything(agent: Client) -> None:
    told = await refused(agent, "q_a_search", {"query": "backups", "scope_fliter": {"include": ["none"]}})
    assert told == "scope_fliter: there is no such argument; `scope_filter` is meant?"
    told = await refused(agent, "q_a_search", {"query": "backups", "scope_filter": {"inclde": ["none"]}})
    assert told == "scope_filter.inclde: there is no such argument; `include` is meant?"
    told = await refused(agent, "q_a_get", {"q_a_pair_id": str(uuid4()), "zzz": 1})
    assert told.startswith("zzz: there is no such argument; there are include_citations, ")


WRONG: tuple[tuple[dict[str, Any], str], ...] = (
    ({}, "query: it is required"),
    ({"query": ""}, "query: String should have at least 1 character"),
    ({"query": "x" * 2_001}, "query: String should have at most 2000 characters"),
    ({"query": "x" * 500_000}, "query: String should have at most 2000 characters"),
    ({"query": 7}, "query: Input should be a valid string"),
    ({"query": "a", "limit": "10"}, "limit: Input should be a valid integer"),
    ({"query": "a", "limit": 51}, "limit: Input should be less than or equal to 50"),
    ({"query": "a", "limit": 10**30}, "limit: "),
    ({"query": "a", "limit": 1e308}, "limit: Input should be a valid integer"),
    ({"query": "a", "limit": True}, "limit: Input should be a valid integer"),
    ({"query": "a", "offset": -1}, "offset: Input should be greater than or equal to 0"),
    ({"query": "a", "as_of": "yesterday"}, "as_of: "),
    ({"query": "a", "as_of": "2026-01-01T00:00:00"}, "as_of: Input should have timezone info"),
    ({"query": "a", "publication_status_filter": []}, "publication_status_filter: "),
    ({"query": "a", "publication_status_filter": ["secret"]}, "publication_status_filter.0: "),
    ({"query": "a", "workspace_id": "mine"}, "workspace_id: Input should be a valid UUID"),
    ({"query": "a", "scope_filter": {"include": ["x"] * 51}}, "scope_filter.include: "),
    ({"query": "a", "scope_filter": {"expression": "(cloud"}}, "bad_expression: "),
)


async def test_arguments_that_are_not_right_are_named(agent: Client) -> None:
    for arguments, told in WRONG:
        said = await refused(agent, "q_a_search", arguments)
        assert said.startswith(told), said
        assert len(said) < 300


async def test_one_id_is_needed(agent: Client) -> None:
    told = "give either `q_a_pair_id` or `q_a_extraction_id`"
    assert await refused(agent, "q_a_get", {}) == told
    both = {"q_a_pair_id": str(uuid4()), "q_a_extraction_id": str(uuid4())}
    assert await refused(agent, "q_a_get", both) == told


async def test_a_refusal_of_the_gateway_is_told_though_the_tool_has_an_output_schema(agent: Client) -> None:
    identity = uuid4()
    told = await refused(agent, "q_a_get", {"q_a_pair_id": str(identity)})
    assert told == f"not_found: there is no pair {identity} in these workspaces"


async def test_a_workspace_can_only_narrow(agent: Client, library: Library) -> None:
    mine = await answered(agent, "q_a_search", {"query": "backups", "workspace_id": str(WORKSPACE)})
    assert mine["results"]
    told = await refused(agent, "q_a_search", {"query": "tenant", "workspace_id": str(ELSEWHERE)})
    assert told.startswith("not_allowed: ")
    theirs = await library.get("/api/qa/search", query="other tenant", workspace_id=str(ELSEWHERE))
    other = theirs["results"][0]["id"]
    assert (await refused(agent, "q_a_get", {"q_a_pair_id": other})).startswith("not_found: ")
    found = await answered(agent, "q_a_search", {"query": "What does the other tenant pay?"})
    assert "other tenant" not in json.dumps(found["results"])


async def test_what_is_stored_comes_back_as_data(agent: Client) -> None:
    found = await answered(agent, "q_a_search", {"query": f"Is the {CANARY} mailbox read?"})
    hit = found["results"][0]
    result = await agent.call_tool("q_a_get", {"q_a_pair_id": hit["q_a_pair_id"]})
    assert result.structured_content is not None
    assert result.structured_content["answer_standard"] == f"{CANARY} {INJECTION}"
    shown = text(result)
    assert all(is_visible(one) for one in shown)
    assert json.loads(shown)["answer_standard"] == f"{CANARY} {INJECTION}"
    UUID(hit["q_a_pair_id"])


async def test_a_tool_that_is_not_there_is_an_error(agent: Client) -> None:
    with pytest.raises(MCPError, match=r"there is no such tool; there are q_a_search"):
        await agent.call_tool("q_a_delete", {})
