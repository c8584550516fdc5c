"""The command line: `burnish --help`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

import click

from burnish import __version__, printer
from burnish.commands import (
    agents,
    configure,
    decide,
    examine,
    ledger,
    library,
    look,
    mcp,
    measure,
    operate,
    platform,
    run,
    spending,
)
from burnish.commands.verbs import Spoken

HEADINGS: Mapping[str, Sequence[str]] = {
    "Run": ("up", "demo", "doctor", "run", "migrate", "topology"),
    "Configure and feed": ("platform", "touchpoints", "scan"),
    "Look": ("signals", "patterns"),
    "Decide": ("proposals",),
    "Measure": ("suites", "ab", "spend"),
    "The ledger": ("live", "history", "rollback", "ledger"),
    "The library": ("qa", "mcp"),
    "Agents": ("agents",),
    "Operate": ("dlq", "token"),
}
ELSEWHERE = {
    "demo": ("burnish.demo.command", "Run the whole loop once, on the example or a data set, and report."),
}


class Verbs(click.Group, Spoken):
    """Lists its verbs under headings, and imports the demo only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the headings."""
        return [name for names in HEADINGS.values() for name in names]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A registered verb, or one that lives elsewhere."""
        if cmd_name in ELSEWHERE:
            command = getattr(importlib.import_module(ELSEWHERE[cmd_name][0]), cmd_name)
            assert isinstance(command, click.Command)
            return command
        return super().get_command(ctx, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One section a heading."""
        for heading, names in HEADINGS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self._summary(ctx, name)) for name in names])

    def _summary(self, ctx: click.Context, name: str) -> str:
        if name in ELSEWHERE:
            return ELSEWHERE[name][1]
        command = self.get_command(ctx, name)
        assert command is not None
        return command.get_short_help_str(limit=100)


def _show_version(ctx: click.Context, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        printer.answer(f"burnish, version {__version__}")
        ctx.exit()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda ctx, _, asked: _show_version(ctx, asked),
    help="Show the version and exit.",
)
def main() -> None:
    """Burnish turns the quality signals of AI features into prompt changes.

    Each change is measured on a gold standard, approved by a person, and can be rolled back.

    \b
    Start here:  burnish demo                       the whole loop, once, on an example
                 burnish up                         everything, on this machine
                 burnish touchpoints apply FILE     your own AI features
    """


GROUPS = (
    *(run, examine, platform, configure, look, decide, measure, spending),
    *(ledger, library, mcp, agents, operate),
)
for group in GROUPS:
    group.add_to(main)
