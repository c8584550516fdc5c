"""Statements: signed, checked, and keys as people keep them."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from libs.auth.statements import StatementKey, holds, public_key

KEY = StatementKey.new()


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=200))
def test_a_signature_holds_for_its_statement_and_key_alone(statement: bytes, other: bytes) -> None:
    signature = KEY.sign(statement)
    assert holds(KEY.public, signature, statement)
    assert not holds(KEY.public, signature, statement + other)
    assert not holds(StatementKey.new().public, signature, statement)


@pytest.mark.parametrize("text", ["", "x", "ü", "!" * 43, "A" * 43, "A" * 10_000, "a\x00"])
def test_what_is_no_key_or_no_signature_holds_for_nothing(text: str) -> None:
    assert not holds(text, KEY.sign(b"x"), b"x")
    assert not holds(KEY.public, text, b"x")


def test_a_key_is_kept_as_pem_that_only_its_owner_reads(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    KEY.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert StatementKey.load(path).public == KEY.public
    with pytest.raises(FileExistsError):
        StatementKey.new().save(path)
    assert "PRIVATE" not in repr(KEY)


def test_a_public_key_is_read_as_text_or_pem() -> None:
    pem = KEY.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    assert public_key(f" {KEY.public}\n") == public_key(pem) == KEY.public


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----"])
def test_what_is_no_public_key_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="no public key"):
        public_key(text)


def test_files_with_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    other = rsa.generate_private_key(65_537, 2_048)
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(ValueError, match="another kind"):
        StatementKey.load(path)
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    path.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(ValueError, match="no private key"):
        StatementKey.load(path)
    with pytest.raises(OSError, match="device"):
        StatementKey.load(Path("/dev/zero"))
