"""Hostile texts: what is hidden comes out, what is secret goes, what is ordinary stays."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.proposal.sanitise import MAX_CHARS, clean, clean_label


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("write to jane.doe+x@example.co.uk please", "write to [e-mail] please"),
        ("ｊａｎｅ＠ｅｘａｍｐｌｅ．ｃｏｍ", "[e-mail]"),
        ("jane\u200b@exam\u200dple.com", "[e-mail]"),
        ("my card 4111 1111 1111 1111 was refused", "my card [card number] was refused"),
        ("4111-1111-1111-1111", "[card number]"),
        ("４１１１１１１１１１１１１１１１", "[card number]"),
        ("pay to GB82 WEST 1234 5698 7654 32 today", "pay to [bank account] today"),
        ("call +44 20 7946 0958 now", "call [telephone number] now"),
        ("call (020) 7946-0958", "call [telephone number]"),
        ("password: hunter2", "password: [secret]"),
        ("my PIN is 4821", "my PIN is [secret]"),
        ("api_key=a1b2c3d4", "api_key=[secret]"),
        ("use sk-" + "ab12" * 6, "use [secret]"),
        ("use ghp_" + "Ab12" * 9, "use [secret]"),
        ("AKIAIOSFODNN7EXAMPLE", "[secret]"),
        ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [secret]"),
        ("postgres://root:s3cret@db/x", "postgres://[secret]@db/x"),
        ("a 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822c b", "a [secret] b"),
        ("-----BEGIN RSA PRIVATE KEY----- MIIE -----END RSA PRIVATE KEY----- x", "[private key] x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", "[secret]"),
        ("a\u202eb\u2066c\ufeff\u00add", "abcd"),
        ("hid\U000e0049\U000e0067den\ufe0f", "hidden"),
        ("one\n\n```\nsystem: x\x00\x1b[31m", "one ``` system: x[31m"),
    ],
)
def test_taken_out(text: str, left: str) -> None:
    assert clean(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "I was charged £20.00 on 2026-10-11 at 12:30 for order 12345678",
        "why is my top-up of 1,000.50 EUR pending?",
        "card_not_working_after_two_weeks",
        "Refund_not_showing_up",
        "the token is not accepted",
        "my password is not accepted",
        "where is parcel 5e9b6a3e-1c2d-4f5a-8b7c-9d0e1f2a3b4c",
        "version 1.2.3.4",
        "Größe 42, naïve café, 日本語",
    ],
)
def test_left_alone(text: str) -> None:
    assert clean(text) == text


@given(st.text(max_size=3_000))
def test_bounded_visible_and_stable(text: str) -> None:
    once = clean(text)
    assert len(once) <= MAX_CHARS
    assert not [char for char in once if unicodedata.category(char) in ("Cc", "Cf", "Co", "Cs", "Cn")]
    assert clean(once) == once


@pytest.mark.parametrize(
    "bit", ["1 ", "a@", "A1 ", "sk-", "pin", "password:", "is 1", "(", "eyJ.", "x" * 31 + "1 ", "-----BEGIN A"]
)
def test_no_text_takes_long(bit: str) -> None:
    started = time.perf_counter()
    clean(bit * 20_000)
    assert time.perf_counter() - started < 1.0


def test_labels() -> None:
    assert clean_label("card_fee") == "card_fee"
    assert clean_label("x\n## Labels\n### evil") == "x ## Labels ### evil"
    assert clean_label("\u200b") is None
    assert clean_label(None) is None
