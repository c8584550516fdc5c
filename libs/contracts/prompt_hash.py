"""The hash by which a prompt text is known everywhere: in events, in the ledger, in a repository."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from libs.contracts.proposals import PromptPart


def content_sha256(parts: Sequence[PromptPart]) -> str:
    """Hex SHA-256 of a prompt.

    One part: of its exact UTF-8 bytes, so that it equals `sha256sum` of the file. Several: over
    `path NUL decimal-length NUL bytes` of each part in order, so that no two lists of parts share a hash.
    Raises ValueError without parts.
    """
    if not parts:
        raise ValueError("a prompt has at least one part")
    if len(parts) == 1:
        return sha256(parts[0].text.encode()).hexdigest()
    digest = sha256()
    for part in parts:
        body = part.text.encode()
        digest.update(part.path.encode() + b"\0" + str(len(body)).encode() + b"\0" + body)
    return digest.hexdigest()
