"""Who runs Postgres when we are root, which it refuses to be.

The wheel's own way adds a user to the machine and opens every parent folder, `/root` among them, to everyone.
Here an account that exists is used, and where it cannot reach the folder it keeps one capability instead.
"""

from __future__ import annotations

import os
import pwd
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

CAP_DAC_OVERRIDE = 1
CAP_DAC_READ_SEARCH = 2
CANDIDATES = ("embedded_postgres", "postgres", "nobody")


@dataclass(frozen=True)
class Account:
    """A user to run a server as; `capability` is the one it keeps, or -1."""

    uid: int
    gid: int
    capability: int = -1

    def own(self, path: Path) -> None:
        """Give one file or folder to this account."""
        os.chown(path, self.uid, self.gid)


def account_for(data: Path, program: Path) -> Account | None:
    """The account that runs `program` on `data`; None when we are not root and need no other.

    An existing data folder keeps the owner it has.
    """
    if os.geteuid() != 0:
        return None
    entry = _owner(data) or _first_known()
    return Account(entry.pw_uid, entry.pw_gid, _capability(data.parent, program))


def _owner(data: Path) -> pwd.struct_passwd | None:
    if not data.exists() or data.stat().st_uid == 0:
        return None
    try:
        return pwd.getpwuid(data.stat().st_uid)
    except KeyError:
        return None


def _first_known() -> pwd.struct_passwd:
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    return next(known[name] for name in CANDIDATES if name in known)


def _capability(folder: Path, program: Path) -> int:
    if sys.platform != "linux" or (_open_to_all(folder) and _open_to_all(program)):
        return -1
    runnable = program.stat().st_mode & stat.S_IXOTH
    return CAP_DAC_READ_SEARCH if runnable and _permitted(CAP_DAC_READ_SEARCH) else CAP_DAC_OVERRIDE


def _open_to_all(path: Path) -> bool:
    return all(part.stat().st_mode & stat.S_IXOTH for part in (path, *path.parents))


def _permitted(capability: int) -> bool:
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapPrm:"))
    return bool(int(line.split()[1], 16) >> capability & 1)
