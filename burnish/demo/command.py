"""`burnish demo`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import click
from burnish_sdk import AsyncClient, BurnishError, Options

from burnish import printer
from burnish.commands.verbs import Verb
from burnish.demo import dataset as datasets
from burnish.demo import library_report
from burnish.demo.dataset import Dataset, DatasetError
from burnish.demo.library import FOLDERS, LibraryDemo, buckets
from burnish.demo.loop import Demo, DemoError, Json, Outcome
from burnish.demo.progress import Bars
from burnish.demo.report import document, show
from burnish.failure import EXITS, Failure
from burnish.parameters import FOLDER
from burnish.printer import remark
from burnish.supervisor import RunningInstallation, running_installation
from libs.llm import PromptError

_PATIENT = Options(timeout_s=60, trust_env=False)


@click.command("demo", cls=Verb)
@click.argument("what", type=click.Choice(["loop", "qa"]), default="loop")
@click.option(
    "--dataset", type=FOLDER, help="A folder with train.csv and test.csv (text,category) instead of the example."
)
@click.option("--proposals", type=click.IntRange(1, 50), default=8, show_default=True, help="How many to measure.")
@click.option("--data", type=FOLDER, help="Where to keep everything; a temporary folder without it.")
@click.option("--keep", is_flag=True, help="Leave it running, with the URL and an admin token, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
def demo(what: str, dataset: Path | None, proposals: int, data: Path | None, keep: bool, as_json: bool) -> None:
    """Run the whole loop once, or the Q&A library with `qa`, through the real services, and report.

    loop: Production traffic is answered by the offline model; wrong answers become flags; patterns, proposals and A/B
    runs follow; the best proposal is approved (the demo plays the admin), activated by a commit, and rolled back.

    qa: files are dropped into folders and their questions found, one with mistakes gets its report, an agent asks over
    MCP, and an answer that changes in its file waits for a person, with its history.
    """
    folder = data and data.absolute()
    if what == "qa":
        if dataset is not None:
            raise click.UsageError("--dataset is for the loop")
        _ended(_run_library(folder, keep, as_json), keep)
        return
    try:
        chosen = datasets.from_folder(dataset) if dataset else datasets.built_in()
    except (DatasetError, PromptError) as error:
        raise Failure(str(error), code=2) from error
    _ended(_run(chosen, proposals, folder, keep, as_json), keep)


def _ended(running: Coroutine[Any, Any, None], keep: bool) -> None:
    try:
        asyncio.run(running)
    except (DemoError, BurnishError) as error:
        raise Failure(str(error)) from error
    except asyncio.CancelledError:  # SIGTERM
        remark("stopped")
        if not keep:
            raise SystemExit(143) from None


demo.example = "burnish demo\nburnish demo qa\nburnish demo --dataset ../shared/data/banking77 --json > result.json"
demo.exits = {**EXITS, 0: "the loop went round, or the library answered"}


async def _run(chosen: Dataset, proposals: int, data: Path | None, keep: bool, as_json: bool) -> None:
    console = printer.console(stderr=True)
    started = monotonic()
    async with _folder(data) as folder:
        repository = folder / "repository"
        if repository.exists():
            raise DemoError(f"{repository} is there from another demo; name a new --data folder or remove it")
        with Bars(console) as bars:
            async with running_installation(
                folder / "installation", repositories=[repository], on_progress=bars.remark
            ) as running:
                outcome = await _loop(chosen, proposals, running, repository, bars)
                seconds = monotonic() - started
                if keep:
                    bars.stop()
                    _report(chosen, outcome, as_json, seconds)
                    await _stay(running)
                bars.step("Stopping")
        _report(chosen, outcome, as_json, seconds)


async def _run_library(data: Path | None, keep: bool, as_json: bool) -> None:
    started = monotonic()
    async with _folder(data) as folder:
        dropped = folder / "folders"
        if dropped.exists():
            raise DemoError(f"{dropped} is there from another demo; name a new --data folder or remove it")
        for name in FOLDERS:
            (dropped / name).mkdir(parents=True)
        bindings = folder / "buckets.yaml"
        bindings.write_text(buckets(dropped), encoding="utf-8")
        settings = {"BURNISH_QA_BUCKETS": str(bindings), "BURNISH_QA_EMBED_EVERY_S": "0.5"}
        with Bars(printer.console(stderr=True)) as bars:
            async with running_installation(
                folder / "installation", settings=settings, services=("gateway", "qa_ingest"), on_progress=bars.remark
            ) as running:
                async with AsyncClient(running.url, running.token(subject="demo-admin"), _PATIENT) as client:
                    agent = running.token(subject="demo-agent")
                    result = await LibraryDemo(client, running.mcp_url, agent, dropped, bars).run()
                result = {**result, "elapsed_s": round(monotonic() - started, 2)}
                if keep:
                    bars.stop()
                    _report_library(result, as_json)
                    remark(f"agents (MCP): {running.mcp_url}")
                    remark(f"drop files into {dropped}")
                    await _stay(running)
                bars.step("Stopping")
        _report_library(result, as_json)


def _report_library(result: Json, as_json: bool) -> None:
    if as_json:
        printer.print_json(result)
    else:
        library_report.show(printer.console(), result)


async def _loop(chosen: Dataset, proposals: int, running: RunningInstallation, repository: Path, bars: Bars) -> Outcome:
    assert running.platform_admin_dsn is not None
    async with AsyncClient(running.url, running.token(subject="demo-admin"), _PATIENT) as client:
        return await Demo(
            gateway=client,
            dataset=chosen,
            repository=repository,
            platform_dsn=running.platform_admin_dsn,
            progress=bars,
            proposals=proposals,
        ).run()


def _report(chosen: Dataset, outcome: Outcome, as_json: bool, seconds: float) -> None:
    result = {**document(chosen, outcome), "elapsed_s": round(seconds, 2)}
    if as_json:
        printer.print_json(result)
    else:
        show(printer.console(), result)


async def _stay(running: RunningInstallation) -> None:
    remark("left running; Ctrl-C stops it")
    remark(f"gateway  {running.url}  (its API at {running.url}/docs)")
    remark(f"token    {running.token(subject='demo-admin')}")
    remark(f"data     {running.data}")
    await asyncio.Event().wait()


@asynccontextmanager
async def _folder(data: Path | None) -> AsyncIterator[Path]:
    if data is not None:
        yield data
        return
    with tempfile.TemporaryDirectory(prefix="burnish-demo-") as temporary:
        yield Path(temporary)
