"""Run: `doctor`."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from burnish.commands.verbs import data_option, json_option, verb
from burnish.printer import answer, plain, print_json

if TYPE_CHECKING:
    from burnish.finding import Finding

COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
EXITS = {0: "all is well", 1: "something deserves a look (warn)", 2: "something is broken (fail), or wrong usage"}


def add_to(group: click.Group) -> None:
    """Register the verb."""

    @verb(group, "doctor", example="burnish doctor\nburnish doctor --json", exits=EXITS)
    @data_option
    @json_option
    def doctor(data: Path, as_json: bool) -> None:
        """Check machine, servers, bus, services, prompts and suites, and say what to do."""
        from burnish.doctor import verdict

        findings = asyncio.run(_examined(data, as_json))
        worst = verdict(findings)
        if as_json:
            print_json({"verdict": worst, "findings": [asdict(one) for one in findings]})
        raise SystemExit({"ok": 0, "warn": 1, "fail": 2}[worst])


async def _examined(data: Path, quiet: bool) -> list[Finding]:
    """Every finding, shown as it is found."""
    from burnish.doctor import examine

    findings = []
    async for finding in examine(data):
        findings.append(finding)
        if not quiet:
            _show(finding)
    return findings


def _show(finding: Finding) -> None:
    told = f"{finding.level:<4}  {plain(finding.check)}: {plain(finding.message)}"
    answer(told, COLOURS[finding.level] if finding.level != "ok" else None)
    if finding.todo and finding.level != "ok":
        answer(f"      → {plain(finding.todo)}")
