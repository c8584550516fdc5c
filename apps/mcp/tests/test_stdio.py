"""stdin and stdout: `burnish mcp` as the child of an agent's host, with a token of the environment or of a file."""

from __future__ import annotations

import pytest

from apps.mcp.tests.conftest import CANARY, Library, answered, over_stdio, refused

pytestmark = pytest.mark.timeout(240)


async def test_a_new_token_in_the_file_takes_the_place_of_the_old(library: Library) -> None:
    file = library.folder / "agent.token"
    file.write_text(library.token(lifetime_s=0.5) + "\n")
    async with over_stdio(library, "--token-file", str(file), BURNISH_TOKEN="") as client:
        told = ""
        while not told:  # until it has run out
            result = await client.call_tool("q_a_search", {"query": "backups"})
            told = result.content[0].text if result.is_error and result.content[0].type == "text" else ""
        assert told.startswith("not_authenticated: ")
        file.write_text(library.token())
        assert (await answered(client, "q_a_search", {"query": "backups"}))["results"]
        file.write_text("no token at all")
        assert (await refused(client, "q_a_search", {"query": "backups"})).startswith("not_authenticated: ")
        file.unlink()
        told = await refused(client, "q_a_search", {"query": "backups"})
        assert told.startswith("not_authenticated: the file of the token: ")


async def test_nothing_that_is_asked_stored_or_secret_reaches_the_log(library: Library) -> None:
    token = library.token()
    log = library.folder / "mcp.log"
    async with over_stdio(library, log=log, BURNISH_TOKEN=token) as client:
        found = await answered(client, "q_a_search", {"query": f"Is the {CANARY} mailbox read?"})
        await answered(client, "q_a_get", {"q_a_pair_id": found["results"][0]["q_a_pair_id"]})
        told = await refused(client, "q_a_search", {"query": CANARY * 500, CANARY: CANARY})
        assert f"{CANARY}: there is no such argument" in told
        told = await refused(client, "q_a_search", {"query": "x", "scope_filter": {"expression": f"({CANARY}"}})
        assert CANARY not in told.replace(f"{CANARY}: there is no", "")
    written = log.read_text()
    assert CANARY not in written
    assert token not in written
    assert "Traceback" not in written
