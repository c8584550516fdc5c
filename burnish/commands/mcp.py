"""For agents: `mcp`."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from burnish.commands.verbs import data_option, json_option, verb
from burnish.data_folder import MCP_PORT, DataFolder
from burnish.failure import EXITS, NOT_ALLOWED, UNREACHABLE, USAGE, Failure
from burnish.parameters import FILE, NAME
from burnish.printer import print_json, remark

MAX_TOKEN_BYTES = 20_000
LOCAL = "127.0.0.1"


def add_to(group: click.Group) -> None:
    """Register the verb."""

    @verb(
        group,
        "mcp",
        example="burnish mcp --token-file agent.token\nburnish mcp --http --port 8321",
        exits={
            **EXITS,
            0: "the client closed stdin, or it was stopped",
            UNREACHABLE: "no installation runs in the data folder",
            NOT_ALLOWED: "there is no token",
        },
    )
    @click.option("--http", "over_http", is_flag=True, help="Serve over streamable HTTP: each caller brings its token.")
    @click.option("--host", type=NAME, help=f"Where to listen, with --http.  [default: {LOCAL}]")
    @click.option(
        "--port", type=click.IntRange(0, 65_535), help=f"With --http; 0 is any free one.  [default: {MCP_PORT}]"
    )
    @click.option(
        "--token-file", type=FILE, help="Read the token from FILE at each call, not from BURNISH_TOKEN; without --http."
    )
    @data_option
    @json_option
    def mcp(
        over_http: bool, host: str | None, port: int | None, token_file: Path | None, data: Path, as_json: bool
    ) -> None:
        """Let agents ask the library: the MCP server, over stdin and stdout, or over HTTP.

        It asks the gateway of BURNISH_URL, or of the data folder, with the caller's own token, and has no other rights.
        """
        if over_http:
            if token_file is not None:
                raise click.UsageError("with --http each caller brings a token of its own: leave out --token-file")
            _serve_http(data, host or LOCAL, MCP_PORT if port is None else port, as_json)
        else:
            if host is not None or port is not None or as_json:
                raise click.UsageError("--host, --port and --json go with --http")
            _serve_stdio(data, token_file)


def _serve_stdio(data: Path, token_file: Path | None) -> None:
    from burnish.client import url_of, where

    url = url_of(data) if token_file is not None else where(data)[0]
    token = _token(data, token_file)
    from apps.mcp import logs, stdio

    logs.configure("WARNING")
    stdio.run(url, token)


def _serve_http(data: Path, host: str, port: int, as_json: bool) -> None:
    from burnish.client import url_of

    gateway = url_of(data)
    from apps.mcp import http, logs

    try:
        listening = http.listen(host, port)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no host"
        raise Failure(f"{host}, port {port}: {reason}", "choose another with --port or --host", USAGE) from error
    at = f"[{host}]" if ":" in host else host
    url = f"http://{at}:{listening.getsockname()[1]}{http.PATH}"
    if as_json:
        print_json({"url": url, "gateway": gateway})
    remark(f"agents find the library at {url}; Ctrl-C stops it")
    logs.configure()
    http.run(gateway, host, listening)


def _token(data: Path, token_file: Path | None) -> Callable[[], str]:
    """What gives the token that holds now: files are read at each call, so that a new one takes its place."""
    if token_file is not None:
        return lambda: _of_file(token_file)
    given = os.environ.get("BURNISH_TOKEN")
    if given:
        return lambda: given
    return lambda: _of_folder(data)


def _of_file(path: Path) -> str:
    from burnish_sdk import ConfigurationError, address

    from libs.files import UnreadableFile, read_text

    try:
        return address.token(read_text(path, MAX_TOKEN_BYTES).strip())
    except UnreadableFile as error:
        raise ConfigurationError("the file of the token", f"the file of the token: {error.reason}") from error


def _of_folder(data: Path) -> str:
    from burnish_sdk import ConfigurationError, address

    note = DataFolder(data).running()
    if note is None:
        raise ConfigurationError("no installation", "no installation runs in the data folder now")
    return address.token(note.token)
