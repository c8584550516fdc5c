"""`burnish demo`."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import click
from burnish_sdk import AsyncClient, BurnishError, Options

from burnish import printer
from burnish.commands.verbs import Verb
from burnish.demo import dataset as datasets
from burnish.demo.dataset import Dataset, DatasetError
from burnish.demo.loop import Demo, DemoError, Outcome
from burnish.demo.progress import Bars
from burnish.demo.report import document, show
from burnish.failure import EXITS, Failure
from burnish.parameters import FOLDER
from burnish.printer import remark
from burnish.supervisor import RunningInstallation, running_installation
from libs.llm import PromptError


@click.command("demo", cls=Verb)
@click.option(
    "--dataset", type=FOLDER, help="A folder with train.csv and test.csv (text,category) instead of the example."
)
@click.option("--proposals", type=click.IntRange(1, 50), default=8, show_default=True, help="How many to measure.")
@click.option("--data", type=FOLDER, help="Where to keep everything; a temporary folder without it.")
@click.option("--keep", is_flag=True, help="Leave it running, with the URL and an admin token, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document on stdout.")
def demo(dataset: Path | None, proposals: int, data: Path | None, keep: bool, as_json: bool) -> None:
    """Run the whole loop once, through the real services, and report.

    Production traffic is answered by the offline model; wrong answers become flags; patterns, proposals and A/B runs
    follow; the best proposal is approved (the demo plays the admin), activated by a commit, and rolled back.
    """
    try:
        chosen = datasets.from_folder(dataset) if dataset else datasets.built_in()
    except (DatasetError, PromptError) as error:
        raise Failure(str(error), code=2) from error
    try:
        asyncio.run(_run(chosen, proposals, data and data.absolute(), keep, as_json))
    except (DemoError, BurnishError) as error:
        raise Failure(str(error)) from error
    except asyncio.CancelledError:  # SIGTERM
        remark("stopped")
        if not keep:
            raise SystemExit(143) from None


demo.example = "burnish demo\nburnish demo --dataset ../shared/data/banking77 --json > result.json"
demo.exits = {**EXITS, 0: "the loop went round"}


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


async def _loop(chosen: Dataset, proposals: int, running: RunningInstallation, repository: Path, bars: Bars) -> Outcome:
    assert running.platform_admin_dsn is not None
    patient = Options(timeout_s=60, trust_env=False)
    async with AsyncClient(running.url, running.token(subject="demo-admin"), patient) as client:
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
