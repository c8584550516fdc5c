"""The loop once around, driven only through the gateway, git and the platform's tables."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from burnish_sdk import AsyncClient, LivePrompt, NotFound

from burnish.demo import platform, repository
from burnish.demo.dataset import Dataset, suite_document
from burnish.demo.platform import Production
from libs.llm import ModelPool

PATIENCE_S = 90.0
MARGIN = 0.002
"""Declared before any run: a fifth of a point. The default of one point would call a small loss "not worse"."""
POLL_S = 0.15
Json = dict[str, Any]


class DemoError(Exception):
    """The loop stopped somewhere; the text says where and what was seen last."""


class Progress(Protocol):
    """Where the demo is; shown as bars."""

    def step(self, title: str, total: int | None = None) -> None:
        """A new step begins."""

    def at(self, done: int, total: int | None = None) -> None:
        """How far it is."""


@dataclass(frozen=True)
class Outcome:
    """All that the report needs, as the API returned it."""

    production: Production
    counts: Json
    patterns: list[Json]
    proposals: list[Json]
    runs: dict[str, Json]
    activated: Json | None
    rolled_back: Json | None
    ledger: list[Json]
    elapsed_s: float


@dataclass(frozen=True)
class Demo:
    """The parts of one demonstration."""

    gateway: AsyncClient
    dataset: Dataset
    repository: Path
    platform_dsn: str
    progress: Progress
    proposals: int

    @property
    def base(self) -> str:
        """The path of the touchpoint in the API."""
        return f"/touchpoints/{self.dataset.touchpoint_id}"

    # --- the steps, in order ----------------------------------------------------------------------------------

    async def run(self) -> Outcome:
        """Everything, from registration to rollback. Raises DemoError with the step that did not come through."""
        started = monotonic()
        await self.register()
        production = await self.produce()
        await self.scan(production)
        patterns = await self.detect()
        proposals = await self.propose(patterns)
        runs = await self.measure(proposals)
        best = best_of(proposals, runs)
        activated = await self.activate(best) if best else None
        rolled_back = await self.roll_back(activated) if activated else None
        return Outcome(
            production=production,
            counts=await self.counts(),
            patterns=await self.patterns(),
            proposals=[await self._get(f"/proposals/{p['proposal_id']}") for p in proposals],
            runs=runs,
            activated=activated,
            rolled_back=rolled_back,
            ledger=await self.ledger(),
            elapsed_s=monotonic() - started,
        )

    async def register(self) -> None:
        """Make the repository, register the touchpoint and its suite."""
        self.progress.step("Registering the touchpoint and its gold standard")
        repository.make(self.repository, self.dataset.prompt_path, self.dataset.prompt)
        await self._put("/touchpoints", {"touchpoints": [self._touchpoint()]})
        await self._until("the suite is imported", self._import_suite)

    async def produce(self) -> Production:
        """Let the offline model answer production traffic with the live prompt; users object to wrong answers."""
        self.progress.step("Answering production traffic", len(self.dataset.traffic))
        live = await self.gateway.prompts.live(self.dataset.touchpoint_id)
        prompt = live.parts[0].text
        answers = await platform.answer_traffic(ModelPool(), self.dataset.touchpoint_id, prompt, self.dataset.traffic)
        self.progress.at(len(answers))
        return await platform.record(self.platform_dsn, answers, live.version_ref)

    async def scan(self, production: Production) -> None:
        """Ask for a scan and wait until every flag and every uncertain item is a stored signal."""
        self.progress.step("Scanning the platform for signals", production.signals)
        await self._post(f"{self.base}/scan")

        async def all_stored() -> bool:
            stored = int((await self.counts())["stored"])
            self.progress.at(stored)
            return stored >= production.signals

        await self._until(f"{production.signals} signals are stored", all_stored)

    async def detect(self) -> list[Json]:
        """Ask for a detector run over everything and wait for it."""
        self.progress.step("Finding patterns")

        async def projected() -> bool:
            status, counts = await self.status(), await self.counts()
            return int(status["detector"]["signals"]) >= int(counts["stored"])

        await self._until("the detector has every signal", projected)
        request = await self._post(f"{self.base}/detect")

        async def run_done() -> bool:
            detector = (await self.status())["detector"]
            return bool(detector["last_request_id"] == request["request_id"] and detector["unprocessed"] == 0)

        await self._until("the detector run is done", run_done)
        return await self.patterns()

    async def propose(self, patterns: list[Json]) -> list[Json]:
        """Proposals come by themselves for strong patterns; wait for those of the highest scores."""
        strongest = [p for p in patterns if p["automatic"] and p["expected"]][: self.proposals]
        if not strongest:
            raise DemoError("no pattern is strong enough for a proposal; use more or harder traffic")
        self.progress.step("Writing proposals", len(strongest))
        wanted = {p["pattern_id"]: p for p in strongest}
        found: dict[str, Json] = {}

        async def all_decided() -> bool:
            listed = await self._get("/proposals", touchpoint_id=self.dataset.touchpoint_id, limit=500)
            found.clear()
            found.update({p["pattern_id"]: p for p in listed["proposals"] if p["pattern_id"] in wanted})
            self.progress.at(len(found))
            return len(found) == len(wanted)

        await self._until(f"{len(wanted)} proposals are written", all_decided)
        ready = [found[identity] for identity in wanted if found[identity]["state"] in ("generated", "in_review")]
        if not ready:
            raise DemoError("no proposal could be written for any of the strongest patterns")
        return ready

    async def measure(self, proposals: list[Json]) -> dict[str, Json]:
        """Run the A/B of every proposal against the live prompt; proposal id → report."""
        cases = self.dataset.gold * len(proposals)
        self.progress.step("Measuring proposals against the gold standard", cases)
        run_ids = {}
        for proposal in proposals:
            asked = await self._post(f"/proposals/{proposal['proposal_id']}/ab")
            run_ids[proposal["proposal_id"]] = asked["run_id"]
        reports: dict[str, Json] = {}

        async def all_measured() -> bool:
            for proposal_id, run_id in run_ids.items():
                reports[proposal_id] = await self._report(run_id)
            finished = [r for r in reports.values() if r["status"] in ("completed", "failed")]
            done = sum(_share(r) * self.dataset.gold for r in reports.values())
            self.progress.at(cases if len(finished) == len(run_ids) else int(done))
            return len(finished) == len(run_ids)

        await self._until("every A/B run has ended", all_measured, poll_s=0.5)
        return reports

    async def activate(self, best: Json) -> Json:
        """Approve the best proposal as the admin, merge its branch as the person, wait for the confirmation."""
        self.progress.step("Approving and activating the best proposal (the demo plays the admin)")
        proposal_id = best["proposal_id"]
        before = await self.gateway.prompts.live(self.dataset.touchpoint_id)

        async def in_review() -> bool:
            # The outcome of the run reaches the proposal as an event, a moment after the report can be read.
            return (await self._get(f"/proposals/{proposal_id}"))["ab"] is not None

        await self._until("the proposal knows its A/B run", in_review)
        await self._post(
            f"/proposals/{proposal_id}/approve",
            {"content_sha256": best["content_sha256"], "reason": "best lower bound of the demo's A/B runs"},
        )
        branch: list[str] = []

        async def on_a_branch() -> bool:
            intents = (await self._get(f"{self.base}/intents"))["intents"]
            mine = [i for i in intents if i.get("proposal_id") == proposal_id]
            if mine and mine[0]["state"] == "failed":
                raise DemoError(f"the change could not be committed: {mine[0].get('error')}")
            branch[:] = [i["branch"] for i in mine if i.get("branch")]
            return bool(branch)

        await self._until("the change is on a branch", on_a_branch)
        commit = repository.merge(self.repository, branch[0])
        await self._post(f"{self.base}/confirm")
        live = await self._live_with(best["content_sha256"])
        entry = next(e for e in reversed(await self.ledger()) if e["kind"] in ("confirmed", "activated"))
        return {
            "proposal_id": proposal_id,
            "version_ref": live.version_ref,
            "content_sha256": live.content_sha256,
            "from": before.version_ref,
            "from_sha256": before.content_sha256,
            "commit": commit,
            "branch": branch[0],
            "confirmed_by": str(entry["detail"].get("confirmed_by") or f"hash {live.content_sha256}"),
        }

    async def roll_back(self, activated: Json) -> Json:
        """Ask for a rollback, apply its patch as the person, wait for the confirmation."""
        self.progress.step("Rolling back")
        asked = await self._post(f"{self.base}/rollback", {"reason": "the demo shows that it can be undone"})
        plan = asked["proposal"]
        commit = repository.apply_patch(self.repository, plan["diff"], "Roll back the prompt")
        await self._post(f"{self.base}/confirm")
        live = await self._live_with(activated["from_sha256"])
        return {
            "from": activated["version_ref"],
            "to": live.version_ref,
            "commit": commit,
            "drifted": bool(plan["drift"]["drifted"]),
        }

    # --- reading ----------------------------------------------------------------------------------------------

    async def counts(self) -> Json:
        """The touchpoint's signal counts."""
        counts = (await self.gateway.signals.counts()).counts
        mine: list[Json] = [c.model_dump() for c in counts if c.touchpoint_id == self.dataset.touchpoint_id]
        return mine[0] if mine else {"stored": 0, "unprocessed": 0, "rejected": 0}

    async def status(self) -> Json:
        found: Json = await self._get(f"{self.base}/status")
        return found

    async def patterns(self) -> list[Json]:
        """The touchpoint's patterns, highest score first."""
        found: list[Json] = (await self._get(f"{self.base}/patterns", limit=500))["patterns"]
        return found

    async def ledger(self) -> list[Json]:
        """The touchpoint's ledger, oldest line first."""
        found = await self._get("/ledger", touchpoint_id=self.dataset.touchpoint_id)
        entries: list[Json] = sorted(found["entries"], key=lambda entry: int(entry["seq"]))
        return entries

    async def _get(self, path: str, **params: Any) -> Any:
        return await self.gateway.request("GET", path, params=params)

    async def _post(self, path: str, body: Json | None = None) -> Any:
        return await self.gateway.request("POST", path, body=body)

    async def _put(self, path: str, body: Json) -> Any:
        return await self.gateway.request("PUT", path, body=body)

    # --- parts ------------------------------------------------------------------------------------------------

    async def _import_suite(self) -> bool:
        """The suite can only be taken once the registration has reached the A/B runner."""
        imported = await self._put(f"{self.base}/suite", suite_document(self.dataset))
        return bool(imported["test_cases"] == self.dataset.gold)

    async def _report(self, run_id: str) -> Json:
        try:
            found: Json = await self._get(f"/ab/{run_id}")
        except NotFound:  # asked for, and not heard yet
            return {"status": "queued", "cases_done": 0, "cases_total": 0}
        return found

    async def _live_with(self, content_sha256: str) -> LivePrompt:
        live: list[LivePrompt] = []

        async def there() -> bool:
            live[:] = [await self.gateway.prompts.live(self.dataset.touchpoint_id)]
            return live[0].content_sha256 == content_sha256

        await self._until("the merged text is live", there)
        return live[0]

    async def _until(self, what: str, condition: Callable[[], Awaitable[bool]], poll_s: float = POLL_S) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not await condition():  # noqa: ASYNC110  # the condition is behind HTTP
                    await asyncio.sleep(poll_s)
        except TimeoutError as error:
            raise DemoError(f"waited {PATIENCE_S:g} s until {what}, in vain; see the services' logs") from error

    def _touchpoint(self) -> Json:
        return {
            "id": self.dataset.touchpoint_id,
            "scope": "global",
            "description": f"Assigns one intent label to a message ({self.dataset.name}).",
            "storage": {
                "adapter": "skill_file",
                "repository": str(self.repository),
                "branch": repository.BRANCH,
                "paths": [self.dataset.prompt_path],
            },
            "suite": {"task": "classify", "primary_metric": "accuracy", "metrics": ["accuracy"], "margin": MARGIN},
            "signals": [
                {"scanner": "si_flag", "every_s": 600},
                {"scanner": "low_confidence", "options": {"threshold": platform.LOW_CONFIDENCE}, "every_s": 600},
            ],
            "model": {"provider": "offline", "name": "offline"},
            "owners": ["demo"],
        }


def primary(report: Json) -> Json | None:
    """The primary metric of an A/B report."""
    return next((metric for metric in report.get("metrics", ()) if metric["is_primary"]), None)


def lower_bound(report: Json) -> float:
    """The lower end of the primary metric's interval; minus infinity where there is none."""
    metric = primary(report)
    return float(metric["ci95"][0]) if metric else float("-inf")


def best_of(proposals: list[Json], runs: dict[str, Json]) -> Json | None:
    """The proposal with the highest lower bound, if its verdict is better and the bound is above zero."""
    better = [p for p in proposals if runs[p["proposal_id"]].get("verdict") == "better"]
    better = [p for p in better if lower_bound(runs[p["proposal_id"]]) > 0]
    return max(better, key=lambda p: lower_bound(runs[p["proposal_id"]]), default=None)


def _share(report: Json) -> float:
    total = int(report.get("cases_total") or 0)
    return int(report.get("cases_done") or 0) / total if total else 0.0
