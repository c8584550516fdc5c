"""A prompt: its parts, and the hash by which its text is known in events, in the ledger and in a repository."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from libs.contracts.envelope import Frozen
from libs.contracts.vocabulary import Name, PromptText


class PromptPart(Frozen):
    """One part of a prompt: where it lives within the touchpoint's storage, and its text."""

    path: Name
    text: PromptText


def content_sha256(parts: Iterable[PromptPart]) -> str:
    """Lower-case hex SHA-256 of a prompt; raises ValueError on no parts or a path that occurs twice.

    One part: the SHA-256 of its exact UTF-8 bytes, so it equals `sha256sum FILE`.

    Several parts, in any order: the SHA-256 of the ASCII bytes `burnish-parts-v1\\n`, then for each part, sorted
    by the UTF-8 bytes of its path, `<decimal byte length of path>:<path><decimal byte length of text>:<text>`.
    The lengths make the layout unambiguous, whatever a text contains.
    """
    encoded = sorted((part.path.encode(), part.text.encode()) for part in parts)
    if not encoded:
        raise ValueError("a prompt has at least one part")
    if len({path for path, _ in encoded}) < len(encoded):
        raise ValueError("a prompt's parts have distinct paths")
    if len(encoded) == 1:
        return hashlib.sha256(encoded[0][1]).hexdigest()
    digest = hashlib.sha256(b"burnish-parts-v1\n")
    for path, text in encoded:
        digest.update(b"%d:%b%d:%b" % (len(path), path, len(text), text))
    return digest.hexdigest()
