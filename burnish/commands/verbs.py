"""What every verb has: an example, documented exit codes, `--json`, `--data`, and errors that say what to do."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from burnish import printer
from burnish.failure import COMMON_EXITS, EXITS, FAULT, INTERRUPTED, NOBODY_READS, UNWRITABLE, Failure
from burnish.parameters import FOLDER
from libs.hinted import HintedError

if TYPE_CHECKING:
    from burnish.client import Gateway

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class Spoken(click.Command):
    """A command of which everything that is written goes through the printer, errors of click's own included."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run as a program: ends with an exit code and, where it failed, one message; never with a traceback."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        printer.prepare()
        code = _exit_code(lambda: super(Spoken, self).main(args, prog_name, complete_var, False, **extra))
        if code == NOBODY_READS:
            printer.abandon()
        sys.exit(code)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """`--help`, written by the printer."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _show_help
        return option


class Verb(Spoken):
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
            formatter.write_dl([(str(code), meaning) for code, meaning in {**self.exits, **COMMON_EXITS}.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run; an error that we know becomes a message and an exit code."""
        _require_a_folder_to_be_in()
        try:
            return super().invoke(ctx)
        except HintedError as error:
            raise Failure(error.message, error.hint) from error


class Group(click.Group, Spoken):
    """Verbs about one thing, in the order in which they were added."""

    def __init__(self, name: str, *, help: str) -> None:
        super().__init__(name, help=help, no_args_is_help=True)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Each verb with its whole first sentence."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=100)) for name, verb in self.commands.items()])


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
        type=FOLDER,
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


def _show_help(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        printer.answer(ctx.get_help())
        ctx.exit()


def _require_a_folder_to_be_in() -> None:
    try:
        Path.cwd()
    except OSError as error:
        raise Failure(f"the folder you are in cannot be used: {error.strerror}", "go to another one with cd") from error


def _exit_code(run: Callable[[], Any]) -> int:
    """What a run ends with, once its answer is written and its error is said."""
    try:
        code = _ended(run)
        printer.finish()
    except printer.Unwritable as error:
        if not error.reason:
            return NOBODY_READS
        printer.error(error.reason)
        return UNWRITABLE
    return code


def _ended(run: Callable[[], Any]) -> int:
    try:
        code = run()
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        _say(error)
        return error.exit_code
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except (click.Abort, KeyboardInterrupt):
        printer.remark("stopped")
        return INTERRUPTED
    except BrokenPipeError:
        return NOBODY_READS
    except printer.Unwritable:
        raise
    except Exception as fault:
        _confess(fault)
        return FAULT


def _say(error: click.ClickException) -> None:
    if isinstance(error, Failure):
        error.show()
        return
    if type(error).__name__ == "NoArgsIsHelpError":  # a group alone: its help is the message
        printer.remark(error.format_message())
        return
    context = getattr(error, "ctx", None)
    printer.error(error.format_message(), f"see `{context.command_path} --help`" if context else "")


def _confess(fault: Exception) -> None:
    """Where it happened, and nothing of what was in hand there."""
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    printer.error(
        f"this is a fault of Burnish: {type(fault).__name__} in {Path(frame.filename).name}, line {frame.lineno}",
        "please report it; with BURNISH_TRACEBACK=1 it shows the way there",
    )
    if os.environ.get("BURNISH_TRACEBACK"):
        printer.remark("".join(traceback.format_exception(fault)))
