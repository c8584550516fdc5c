"""Keys of one's own for small installations: they sign the tokens that `burnish token` prints."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from libs.files import read_text

MAX_KEY_BYTES = 16_384


@dataclass(frozen=True)
class SigningKey:
    """A private ES256 key with its id. Kept in a file that only its owner can read."""

    jwk: dict[str, str] = field(repr=False)

    @property
    def kid(self) -> str:
        return self.jwk["kid"]

    def public(self) -> dict[str, str]:
        """The public half, as it stands in a JWKS."""
        return {name: value for name, value in self.jwk.items() if name != "d"}

    def save(self, path: Path) -> None:
        """Write the private key to a new file, mode 0600. Raises FileExistsError rather than replace a key."""
        write_secret(path, json.dumps(self.jwk))

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read a key that `save` wrote. Raises OSError, and ValueError for what is no key."""
        try:
            jwk = json.loads(read_text(path, MAX_KEY_BYTES))
        except RecursionError as error:
            raise ValueError("the file is no key") from error
        if not isinstance(jwk, dict) or not all(isinstance(value, str) for value in jwk.values()):
            raise ValueError("the file is no key")
        if not {"kty", "crv", "x", "y", "d", "kid"} <= jwk.keys():
            raise ValueError("the file is no private key on P-256 with an id")
        return cls(jwk)


def new_signing_key() -> SigningKey:
    """A fresh key on P-256."""
    private = json.loads(ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1())))
    return SigningKey({**private, "kid": uuid4().hex, "alg": "ES256", "use": "sig"})


def jwks(*keys: SigningKey) -> str:
    """The public JWKS document of these keys; several while a key is being replaced."""
    return json.dumps({"keys": [key.public() for key in keys]})


def write_secret(path: Path, text: str) -> None:
    """Write a new file that only its owner can read. Raises FileExistsError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
