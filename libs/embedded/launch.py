"""Becomes a server that dies with its parent and that, started by root, runs as somebody else.

Run as a script by `process.spawn`: `python -I -S launch.py PARENT SIGNAL UID GID CAPABILITY ARGV...`,
where -1 means "leave it". It imports only the standard library, because it has no site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_KEEPCAPS = 8
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
CAPABILITY_VERSION_3 = 0x20080522


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _become(libc: ctypes.CDLL, uid: int, gid: int, capability: int) -> None:
    """Drop root, keeping at most the one capability the server needs to reach its folder."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    if capability < 0:
        os.setresuid(uid, uid, uid)
        return
    _check(libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), "PR_SET_KEEPCAPS")
    os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    bit = 1 << capability
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit, 0, 0, 0)  # effective, permitted, inheritable; low, high
    _check(libc.capset(header, sets), "capset")
    _check(
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0),
        "PR_CAP_AMBIENT_RAISE",
    )


def _die_with(libc: ctypes.CDLL, parent: int, death_signal: int) -> None:
    """Ask for a signal when the parent ends. Must follow `_become`: a change of user clears it."""
    _check(libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0), "PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit(1)


def main() -> None:
    """Prepare the process, then replace it by the server."""
    parent, death_signal, uid, gid, capability = (int(word) for word in sys.argv[1:6])
    command = sys.argv[6:]
    libc = ctypes.CDLL(None, use_errno=True)
    if uid >= 0:
        _become(libc, uid, gid, capability)
    if sys.platform == "linux":
        _die_with(libc, parent, death_signal)
    for name in (
        "SIGPIPE",
        "SIGXFSZ",
    ):  # Python ignores these, and exec would hand that on
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.umask(0o077)
    os.execv(command[0], command)  # noqa: S606 - a program of ours, by its full path


if __name__ == "__main__":
    main()
