"""Local ports: a free one, whether one is free, and who has one that is not."""

from __future__ import annotations

import errno
import socket

import psutil

from libs.embedded.errors import EmbeddedError, PortTaken

HOST = "127.0.0.1"


def free_port() -> int:
    """A port nobody listens on now. Somebody may take it before the caller does: be ready to try again."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def is_free(port: int) -> bool:
    """Whether a server could listen on `port` now."""
    try:
        require_free(port)
    except EmbeddedError:
        return False
    return True


def require_free(port: int) -> None:
    """Raise `PortTaken` when somebody listens on `port`, `EmbeddedError` when nobody here may."""
    if not 0 < port < 65536:
        raise EmbeddedError(f"port {port} does not exist", "choose one between 1024 and 65535")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as both servers do
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise _refusal(port, error) from error


def taken(port: int) -> PortTaken:
    """The error for a port that another program listens on, naming the program when we may know it."""
    holder = _holder(port)
    who = f"by {holder}" if holder else "by a program of another user"
    return PortTaken(
        f"port {port} on {HOST} is taken {who}",
        "stop that program, or choose another port",
    )


def _refusal(port: int, error: OSError) -> EmbeddedError:
    if error.errno == errno.EADDRINUSE:
        return taken(port)
    if error.errno in (errno.EACCES, errno.EPERM):
        return EmbeddedError(f"port {port} is not allowed for this user", "choose one above 1023")
    return EmbeddedError(f"port {port} on {HOST}: {error.strerror}")


def _holder(port: int) -> str | None:
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError):  # macOS shows them to root only
        return None
    for entry in connections:
        if entry.status == psutil.CONN_LISTEN and entry.laddr and entry.laddr[1] == port and entry.pid:
            return _describe(entry.pid)
    return None


def _describe(pid: int) -> str:
    try:
        return f"{psutil.Process(pid).name()} (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"
