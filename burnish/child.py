"""One service in a process of its own: `python -m burnish.child <service> <gate>`.

What takes long at a start is importing. So a supervisor starts all services at once, while the servers start and
migrations run, and holds the gate (a lock on a file): each service imports, then waits for the gate to open.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import sys
from collections.abc import Callable
from typing import cast

APPS = ("mcp",)
"""Applications that run beside the services: HTTP clients of the gateway."""


def entry_point(name: str) -> Callable[[], None]:
    """`main` of a service or an application, imported. Raises ModuleNotFoundError for one that is not there."""
    folder = "apps" if name in APPS else "services"
    return cast("Callable[[], None]", importlib.import_module(f"{folder}.{name}.__main__").main)


def pass_gate(path: str) -> None:
    """Wait until nobody holds the file exclusively; a holder that was killed no longer does."""
    gate = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(gate, fcntl.LOCK_SH)
    finally:
        os.close(gate)


def main() -> None:
    """Import, wait, run until SIGTERM."""
    run = entry_point(sys.argv[1])
    if len(sys.argv) > 2:
        pass_gate(sys.argv[2])
    run()


if __name__ == "__main__":
    main()
