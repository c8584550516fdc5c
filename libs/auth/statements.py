"""Ed25519 signatures under statements that are kept elsewhere, such as the head of the ledger."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from libs.auth.signing import MAX_KEY_BYTES, write_secret
from libs.files import read_bytes

_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True)
class StatementKey:
    """A private Ed25519 key. In a file it is PEM, as `openssl genpkey -algorithm ed25519` writes it."""

    private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def new(cls) -> StatementKey:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: Path) -> StatementKey:
        """Read a key. Raises OSError, and ValueError for what is no such key."""
        try:
            key = load_pem_private_key(read_bytes(path, MAX_KEY_BYTES), None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise ValueError("it holds no private key in PEM without a password") from error
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("it holds a key of another kind than Ed25519")
        return cls(key)

    def save(self, path: Path) -> None:
        """Write the private key to a new file, mode 0600. Raises FileExistsError rather than replace a key."""
        write_secret(path, self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())

    @property
    def public(self) -> str:
        """The public half: 32 bytes as 43 characters of base64url."""
        return _encoded(self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw))

    def sign(self, statement: bytes) -> str:
        """The signature, as base64url."""
        return _encoded(self.private.sign(statement))


def holds(public: str, signature: str, statement: bytes) -> bool:
    """Whether the holder of this public key signed the statement."""
    try:
        Ed25519PublicKey.from_public_bytes(_decoded(public)).verify(_decoded(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def public_key(text: str) -> str:
    """A public key out of what a person keeps: 43 characters of base64url, or PEM. Raises ValueError."""
    stripped = text.strip()
    if _TEXT.fullmatch(stripped):
        return stripped
    try:
        key = load_pem_public_key(stripped.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ValueError("it is no public key: give 43 characters of base64url, or PEM") from error
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("it is a key of another kind than Ed25519")
    return _encoded(key.public_bytes(Encoding.Raw, PublicFormat.Raw))


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    try:
        return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("it is no base64url") from error
