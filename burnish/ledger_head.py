"""A head of the ledger that somebody kept: read from its file, and its signature checked with a key that is trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from burnish.data_folder import DataFolder
from burnish.failure import FAILED, USAGE, Failure
from burnish.json_text import read_json
from burnish.printer import remark
from libs.auth.statements import holds, public_key
from libs.contracts.versions import LedgerHead
from libs.files import UnreadableFile, read_text

MAX_BYTES = 65_536
KEPT = "it is made by `burnish ledger head --json > FILE`"


def read_head(path: Path) -> LedgerHead:
    """The head in a file. Raises Failure."""
    try:
        return LedgerHead.model_validate(read_json(read_text(path, MAX_BYTES)), strict=False)
    except UnreadableFile as error:
        raise Failure(str(error), KEPT, USAGE) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the document"
        raise Failure(f"{path}: {place}: {first['msg']}", KEPT, USAGE) from error
    except ValueError as error:
        raise Failure(f"{path} is no head of a ledger: {error}", KEPT, USAGE) from error


def trusted_key(given: str | None, data: Path, ask: Callable[[], str | None]) -> str | None:
    """The public key that a head has to be signed with.

    The one that was given, as text or in a file; else that of the installation in the data folder; else the one that
    the gateway says it signs with, which is then remarked. Raises Failure.
    """
    folder = DataFolder(data).public_ledger_key
    if given is None and folder.exists() and not os.environ.get("BURNISH_URL"):
        given = str(folder)
    if given is None:
        key = ask()
        if key is not None:
            remark(f"the gateway says that it signs with {key}; name a key that you trust with --public-key")
        return key
    try:
        return public_key(read_text(given, MAX_BYTES) if _is_path(given) else given)
    except (OSError, ValueError) as error:
        raise Failure(f"--public-key: {error}", "give the key, or a file with it", USAGE) from error


def require_signature(head: LedgerHead, key: str | None, unsigned: bool) -> None:
    """Raise Failure unless the holder of `key` signed the head, or it has no signature and none is wanted."""
    if head.signature is None:
        if unsigned:
            return
        raise Failure("the head is not signed: whoever could write its file can have written it",
                      "take it as it is with --unsigned", FAILED)  # fmt: skip
    if key is None:
        raise Failure("there is no key to check the head's signature with", "name it with --public-key", FAILED)
    if head.public_key != key:
        raise Failure(f"the head was signed with {head.public_key}, not with {key}",
                      "if the key was replaced, name the one of that time with --public-key", FAILED)  # fmt: skip
    if not holds(key, head.signature, head.statement()):
        raise Failure("the head's signature is wrong: it was changed after it was signed", code=FAILED)


def _is_path(given: str) -> bool:
    return len(given) != 43 and "-----BEGIN" not in given
