"""The process that services are forked from: what all of them import is imported once.

Importing the kit costs each service a second or two of a core. Here it is done once, while the servers start, and a
service is a fork: it starts, and after a crash starts again, in milliseconds. `python -m burnish.forkserver FD` speaks
JSON lines on the socket FD. `{"start": name, "import": [module, …], "environment": {…}, "log": path, "gate": path,
"umask": n}` is answered with `{"started": name, "pid": n}`; the end of a child is told as `{"ended": pid, "status":
exit code or -signal}`. It runs on Linux; elsewhere a fork without exec is not safe with every library
(`burnish.children` spawns there).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from burnish.child import entry_point, pass_gate

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
SHARED = ("libs.service_kit.service", "httpx", "numpy")


def main() -> None:
    """Import what is shared, then fork when asked, until the socket closes."""
    _import(SHARED)
    with socket.socket(fileno=int(sys.argv[1])) as line, _woken_by_children() as woken:
        _serve(line, woken)


def _import(modules: Sequence[str]) -> None:
    """Import what is not there yet, once for every child that is forked from now on."""
    new = [module for module in modules if module not in sys.modules]
    for module in new:
        importlib.import_module(module)
    if new:
        gc.collect()
        gc.freeze()  # a collection in a child would copy every page that is shared now


def _serve(line: socket.socket, woken: socket.socket) -> None:
    asked = b""
    with selectors.DefaultSelector() as selector:
        selector.register(line, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(4_096)
                _report_ended(line)
            if line in ready:
                received = line.recv(65_536)
                if not received:
                    return
                *whole, asked = (asked + received).split(b"\n")
                for request in whole:
                    _start(line, woken, json.loads(request))


def _start(line: socket.socket, woken: socket.socket, request: dict[str, Any]) -> None:
    _import(request["import"])
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        line.close()
        woken.close()
        _become(request, parent)
    _send(line, {"started": request["start"], "pid": pid})


def _report_ended(line: socket.socket) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            _send(line, {"ended": pid, "status": os.waitstatus_to_exitcode(status)})


def _send(line: socket.socket, message: dict[str, Any]) -> None:
    line.sendall(json.dumps(message).encode() + b"\n")


@contextlib.contextmanager
def _woken_by_children() -> Iterator[socket.socket]:
    """A socket that is readable when a child has ended."""
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(theirs.fileno())
    with ours, theirs:
        yield ours


def _become(request: dict[str, Any], parent: int) -> NoReturn:
    """Be the service, in the forked child. Never returns into the parent's code."""
    status = 1
    try:
        _leave_parent(request, parent)
        run = entry_point(request["start"])
        pass_gate(request["gate"])
        run()
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _leave_parent(request: dict[str, Any], parent: int) -> None:
    """Signals, session, name, output and environment of a process of its own, which dies with its parent."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, f"b/{request['start']}".encode()[:15], 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before we could ask
        os._exit(1)
    output = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [f"burnish run {request['start']}"]


if __name__ == "__main__":
    main()
