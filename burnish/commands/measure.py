"""Measure: `suites`, `ab`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

import click

from burnish import answers, printer
from burnish.answers import read
from burnish.commands.show import short, when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import FAILED, GATEWAY_EXITS, NOT_FOUND, USAGE, Failure
from burnish.parameters import FILE, TOUCHPOINT_ID, Seconds
from burnish.printer import answer, plain, print_fields, print_json, print_table, remark

if TYPE_CHECKING:
    from burnish.client import Gateway

POLL_S = 0.3
WORSE, UNDECIDED = 1, 2
FINISHED = ("completed", "failed")


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    suites = Group("suites", help="Import and list gold standards.")
    group.add_command(suites)
    _add_suites(suites)
    _add_ab(group)


def _add_suites(suites: click.Group) -> None:
    @verb(
        suites,
        "import",
        example="burnish suites import support.intent examples/support_desk/data/gold.jsonl",
        exits={**GATEWAY_EXITS, 0: "these cases are the touchpoint's suite"},
    )
    @click.argument("touchpoint", type=TOUCHPOINT_ID)
    @click.argument("file", type=FILE)
    @data_option
    @json_option
    def import_(touchpoint: str, file: Path, data: Path, as_json: bool) -> None:
        """Make the cases of a .jsonl or .csv file the suite of a touchpoint.

        A case has `input` (or `text`) and `expected` (or `category`); `case_id`, `split` (dev or test) and `cluster`
        may be given. The same content again changes nothing.
        """
        cases = cases_of(file)
        with gateway(data) as api:
            suite = read(api.put(f"/touchpoints/{touchpoint}/suite", {"cases": cases}), answers.Suite)
        if as_json:
            print_json(suite)
        else:
            _print_suites([suite])

    @verb(suites, "list", example="burnish suites list", exits=GATEWAY_EXITS)
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @data_option
    @json_option
    def list_(touchpoint: str | None, data: Path, as_json: bool) -> None:
        """List the current suites, with the smallest difference each can detect."""
        with gateway(data) as api:
            found = read(api.get("/suites", touchpoint_id=touchpoint), answers.Suites)["suites"]
        if as_json:
            print_json(found)
        else:
            _print_suites(found)

    @verb(suites, "waiting", example="burnish suites waiting --touchpoint support.answers", exits=GATEWAY_EXITS)
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @click.option("--limit", type=click.IntRange(1, 200), default=100, show_default=True)
    @data_option
    @json_option
    def waiting(touchpoint: str | None, limit: int, data: Path, as_json: bool) -> None:
        """List published pairs of the library that wait to be cases of the next suite."""
        with gateway(data) as api:
            found = read(api.get("/suites/waiting", touchpoint_id=touchpoint, limit=limit), answers.WaitingCases)
        if as_json:
            print_json(found)
            return
        rows = [
            (one["touchpoint_id"], one["input"][:60], one["answer_preview"][:60], one["version"], one["pair_id"])
            for one in found["cases"]
        ]
        print_table(("touchpoint", "question", "answer", "version", "pair"), rows, empty="no pair waits")
        for name, count in found["counts"].items():
            remark(f"{plain(name)}: {count} wait")


def cases_of(file: Path) -> list[dict[str, Any]]:
    """The cases of a suite's file, as the gateway takes them."""
    from burnish.suite_file import SuiteFileError, read_suite

    try:
        return [case.model_dump(mode="json", exclude_none=True) for case in read_suite(file)]
    except SuiteFileError as error:
        raise Failure(str(error), code=USAGE) from error


def _add_ab(group: click.Group) -> None:
    @verb(
        group,
        "ab",
        example="burnish ab 5b7e…\nburnish ab 5b7e… --no-wait --json\nburnish ab --run 77c0…",
        exits={
            **GATEWAY_EXITS,
            0: "better, or not worse (with --no-wait: the run is asked for)",
            WORSE: "worse",
            UNDECIDED: "undecided, or the run failed or did not end in time, or wrong usage; stderr says which",
        },
    )
    @click.argument("proposal_id", type=click.UUID, required=False)
    @click.option("--run", "run_id", type=click.UUID, help="Show a run that was asked for before.")
    @click.option("--wait/--no-wait", default=True, show_default=True, help="Wait for the verdict.")
    @click.option("--timeout", "timeout_s", type=Seconds(1), default=600.0, show_default=True, help="Seconds.")
    @data_option
    @json_option
    def ab(
        proposal_id: UUID | None, run_id: UUID | None, wait: bool, timeout_s: float, data: Path, as_json: bool
    ) -> None:
        """Measure a proposal against the live prompt, over the same cases of the suite.

        The verdict is the exit code, so that a script can go by it.
        """
        if (proposal_id is None) == (run_id is None):
            raise click.UsageError("give a proposal to measure, or --run with the id of a run")
        try:
            report = _measured(data, proposal_id, run_id, timeout_s if wait else None)
        except Failure as error:
            raise Failure(
                error.message, error.hint, UNDECIDED if error.exit_code == FAILED else error.exit_code
            ) from error
        if as_json:
            print_json(report)
        elif wait:
            _print_report(report)
        else:
            remark(f"asked; see `burnish ab --run {report['run_id']}`")
        if wait:
            _end_by_verdict(report)


def _measured(data: Path, proposal_id: UUID | None, run_id: UUID | None, timeout_s: float | None) -> Any:
    """The report of the run, or only its id where nobody waits for it."""
    with gateway(data) as api:
        if run_id is not None:
            api.get(f"/ab/{run_id}")  # a run that nobody asked for would be waited for in vain
            asked = str(run_id)
        else:
            asked = read(api.post(f"/proposals/{proposal_id}/ab"), answers.RunRequested)["run_id"]
        return {"run_id": asked} if timeout_s is None else _finished(api, asked, timeout_s)


def _end_by_verdict(report: answers.AbRun) -> None:
    if report["status"] == "failed":
        raise Failure("the run failed", report["error"] or report["reason"], UNDECIDED)
    if report["verdict"] == "worse":
        raise SystemExit(WORSE)
    if report["verdict"] not in ("better", "not_worse"):
        raise SystemExit(UNDECIDED)


def _finished(api: Gateway, run_id: str, timeout_s: float) -> answers.AbRun:
    """The report once the run has ended; its progress on a terminal meanwhile."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    deadline = time.monotonic() + timeout_s
    console = printer.console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("cases", total=None)
        while time.monotonic() < deadline:
            report = _report(api, run_id)
            if report is not None:
                bar.update(task, total=report["cases_total"] or None, completed=report["cases_done"])
                if report["status"] in FINISHED:
                    return report
            time.sleep(POLL_S)
    raise Failure(f"the run {run_id} has not ended within {timeout_s:g} s", f"see `burnish ab --run {run_id}`")


def _report(api: Gateway, run_id: str) -> answers.AbRun | None:
    """None while the runner has not heard of it."""
    try:
        return read(api.get(f"/ab/{quote(run_id, safe='')}"), answers.AbRun)
    except Failure as error:
        if error.exit_code == NOT_FOUND:
            return None
        raise


def _print_report(report: answers.AbRun) -> None:
    gained, lost = len(report["flips"]["gained"]), len(report["flips"]["lost"])
    print_fields(
        [
            ("run", report["run_id"]),
            ("touchpoint", report["touchpoint_id"]),
            ("A", f"{report['label_a']} ({short(report['a_sha256'])})"),
            ("B", f"{report['label_b']} ({short(report['b_sha256'])})"),
            ("cases", f"{report['n']} of the {report['split']} split"),
            ("flips", f"{gained} gained, {lost} lost"),
            ("verdict", f"{report['verdict']}: {report['reason']}" if report["verdict"] else report["status"]),
            ("finished", when(report["finished_at"])),
        ]
    )
    rows = [
        [one["name"] + (" *" if one["is_primary"] else ""), one["a"], one["b"], f"{one['delta']:+.4f}",
         f"{one['ci95'][0]:+.4f} … {one['ci95'][1]:+.4f}", one["effect_size"], one["method"]]
        for one in report["metrics"]
    ]  # fmt: skip
    if rows:
        answer()
        print_table(["metric", "A", "B", "difference", "95 % interval", "effect", "method"], rows)


def _print_suites(suites: Sequence[answers.Suite]) -> None:
    rows = [
        [one["touchpoint_id"], one["dev_cases"], one["test_cases"], one["labels"], one["smallest_detectable_effect"],
         short(one["suite_sha256"]), when(one["imported_at"])]
        for one in suites
    ]  # fmt: skip
    print_table(
        ["touchpoint", "dev cases", "test cases", "labels", "smallest difference", "sha256", "imported"],
        rows,
        empty="no suite yet",
    )
