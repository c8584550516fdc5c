"""What every verb has: an example, documented exit codes, `--json`, `--data`, and errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from burnish.failure import EXITS, Failure

if TYPE_CHECKING:
    from burnish.client import Gateway

TOUCHPOINT_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Verb(click.Command):
    """A command whose help ends with an example and its exit codes."""

    example: str = ""
    exits: Mapping[int, str] = EXITS

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Example and exit codes."""
        if self.example:
            with formatter.section("Example"):
                for line in self.example.strip().splitlines():
                    formatter.write(f"  {line.strip()}\n")
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code), meaning) for code, meaning in self.exits.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error that we know becomes a message and an exit code."""
        from burnish.errors import InstallationError
        from libs.embedded import EmbeddedError
        from libs.provisioning.migrations import MigrationError

        try:
            return super().invoke(ctx)
        except (InstallationError, EmbeddedError, MigrationError) as error:
            raise Failure(error.message, error.hint) from error
        except KeyboardInterrupt:
            raise SystemExit(130) from None


class Group(click.Group):
    """Verbs about one thing, in the order in which they were added."""

    def __init__(self, name: str, *, help: str) -> None:
        super().__init__(name, help=help, no_args_is_help=True)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In order."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each verb with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=100)) for name, verb in self.commands.items()])


def touchpoint_id(value: str) -> str:
    """A touchpoint's id as contracts have it, since it becomes part of an address."""
    if not TOUCHPOINT_ID.fullmatch(value):
        raise click.BadParameter("an id has lower-case letters, digits and . _ - only, and no . _ - first")
    return value


def verb(
    group: click.Group, name: str, *, example: str, exits: Mapping[int, str] = EXITS
) -> Callable[[Callable[..., Any]], Verb]:
    """Register a function as a verb of `group`."""

    def register(function: Callable[..., Any]) -> Verb:
        command = click.command(name, cls=Verb)(function)
        assert isinstance(command, Verb)
        command.example, command.exits = example, exits
        group.add_command(command)
        return command

    return register


def json_option(function: FunctionT) -> FunctionT:
    """`--json`: one JSON document on stdout, and nothing else there."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(function)


def data_option(function: FunctionT) -> FunctionT:
    """`--data DIR`."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="BURNISH_DATA",
        default=".burnish",
        show_default=True,
        show_envvar=True,
        help="The installation's data folder.",
    )(function)


def gateway(data: Path) -> Gateway:
    """The gateway that the environment or the data folder names; for `with`."""
    from burnish.client import Gateway

    return Gateway(data)


def remark(message: str) -> None:
    """Progress and remarks go to stderr, so that stdout is only ever the answer."""
    click.echo(message, err=True)
