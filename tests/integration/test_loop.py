"""The loop once around on the built-in example: seed, detect, propose, A/B, approve, activate, roll back."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from burnish_sdk import AsyncClient, Options

from burnish.demo import dataset as datasets
from burnish.demo import repository
from burnish.demo.loop import Demo, Outcome
from burnish.demo.report import document
from burnish.supervisor import running_installation

Json = dict[str, Any]
pytestmark = pytest.mark.timeout(400)


class Silent:
    """No bars."""

    def step(self, title: str, total: int | None = None) -> None: ...

    def at(self, done: int, total: int | None = None) -> None: ...


@dataclass(frozen=True)
class Seen:
    """What the demo says, and what the API says of the same at the end."""

    dataset: datasets.Dataset
    outcome: Outcome
    result: Json
    patterns: list[Json]
    proposals: dict[str, Json]
    runs: dict[str, Json]
    ledger: list[Json]
    intact: bool
    live: Json
    counts: Json
    repository: Path
    repository_text: str


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """One run for every test of this module: it takes a while."""
    return asyncio.run(_run(tmp_path_factory.mktemp("loop")))


async def _run(folder: Path) -> Seen:
    chosen = datasets.built_in()
    place = folder / "repository"
    async with running_installation(folder / "installation", repositories=[place]) as running:
        assert running.platform_admin_dsn
        patient = Options(timeout_s=60, trust_env=False)
        async with AsyncClient(running.url, running.token(subject="tester"), patient) as client:

            async def get(path: str, **params: Any) -> Any:
                return await client.request("GET", path, params=params)

            demo = Demo(client, chosen, place, running.platform_admin_dsn, Silent(), proposals=6)
            outcome = await demo.run()
            base = f"/touchpoints/{chosen.touchpoint_id}"
            proposals = {p["proposal_id"]: p for p in outcome.proposals}
            return Seen(
                dataset=chosen,
                outcome=outcome,
                result=document(chosen, outcome),
                patterns=(await get(f"{base}/patterns", limit=500))["patterns"],
                proposals={i: await get(f"/proposals/{i}") for i in proposals},
                runs={i: await get(f"/ab/{r['run_id']}") for i, r in outcome.runs.items()},
                ledger=(await get("/ledger", limit=500))["entries"],
                intact=(await get("/ledger/verify"))["intact"],
                live=await get(f"{base}/live"),
                counts=(await get("/signals/counts"))["counts"][0],
                repository=place,
                repository_text=(place / chosen.prompt_path).read_text(),
            )


def test_every_wrong_or_uncertain_answer_is_one_stored_signal(seen: Seen) -> None:
    assert seen.result["signals_stored"] == seen.outcome.production.signals == seen.counts["stored"]
    assert seen.counts["observed"] == seen.counts["stored"]
    assert seen.counts["unprocessed"] == seen.counts["rejected"] == 0


def test_the_numbers_are_those_of_the_api(seen: Seen) -> None:
    told = {p["id"]: (p["title"], p["evidence"], p["actors"], p["score"]) for p in seen.result["patterns"]}
    assert told == {p["pattern_id"]: (p["title"], p["evidence_count"], p["actors"], p["score"]) for p in seen.patterns}
    for proposal in seen.result["proposals"]:
        run = seen.runs[proposal["id"]]
        assert proposal["verdict"] == run["verdict"]
        assert proposal["hunks"] == seen.proposals[proposal["id"]]["hunks"]
        assert proposal["flips"] == {side: len(run["flips"][side]) for side in ("gained", "lost")}
        for metric in run["metrics"]:
            shown = proposal["metrics"][metric["name"]]
            assert all(shown[key] == metric[key] for key in ("a", "b", "delta", "ci95", "effect_size"))
    assert {e["entry_sha256"] for e in seen.result["ledger"]} == {e["entry_sha256"] for e in seen.ledger}


def test_the_document_has_what_it_promises(seen: Seen) -> None:
    assert set(seen.result) >= {
        "signals_stored", "patterns", "proposals", "activated", "rolled_back", "ledger", "elapsed_s",
    }  # fmt: skip
    for pattern in seen.result["patterns"]:
        assert set(pattern) >= {"id", "title", "strategy", "evidence", "actors", "score"}
        assert pattern["evidence"] >= 2
    for proposal in seen.result["proposals"]:
        assert set(proposal) >= {"id", "pattern_id", "hunks", "verdict", "metrics", "flips"}
        for metric in proposal["metrics"].values():
            low, high = metric["ci95"]
            assert low <= metric["delta"] <= high


def test_one_proposal_is_better_and_one_is_not(seen: Seen) -> None:
    verdicts = {p["verdict"] for p in seen.result["proposals"]}
    assert "better" in verdicts
    assert verdicts & {"worse", "undecided", "not_worse"}
    best = next(p for p in seen.result["proposals"] if p["id"] == seen.result["activated"]["proposal_id"])
    assert best["metrics"]["accuracy"]["ci95"][0] > 0


def test_no_hunk_holds_a_gold_case(seen: Seen) -> None:
    """The writer sees the dev split and the evidence only."""
    gold = {_normal(case.input) for case in seen.dataset.cases if case.split == "test"}
    lines = {
        _normal(line.removeprefix("- "))
        for proposal in seen.result["proposals"]
        for hunk in proposal["hunks"]
        for line in set(hunk["after"].splitlines()) - set(hunk["before"].splitlines())
    }
    assert lines
    assert not lines & gold


def test_every_hunk_keeps_the_signals_that_argue_for_it(seen: Seen) -> None:
    for proposal in seen.result["proposals"]:
        assert all(hunk["signal_ids"] for hunk in proposal["hunks"])


def test_it_was_activated_by_a_commit_and_rolled_back_by_another(seen: Seen) -> None:
    activated, back = seen.result["activated"], seen.result["rolled_back"]
    assert activated["content_sha256"] in activated["confirmed_by"]
    assert activated["version_ref"].startswith("git:")
    assert back["from"] == activated["version_ref"]
    assert seen.live["content_sha256"] == activated["from_sha256"]
    assert seen.repository_text == seen.dataset.prompt
    assert int(repository.git(seen.repository, "rev-list", "--count", "main")) == 3


def test_the_ledger_is_one_intact_chain_that_tells_it_all(seen: Seen) -> None:
    assert seen.intact
    kinds = [entry["kind"] for entry in seen.result["ledger"]]
    assert kinds[0] == "registered"
    assert {"intent", "confirmed", "rolled_back"} <= set(kinds)
    assert seen.proposals[seen.result["activated"]["proposal_id"]]["state"] == "rolled_back"


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
