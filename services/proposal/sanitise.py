"""Makes the text of signals safe to quote to a model: visible, bounded, without secrets and personal data. Pure.

Signals are written by anybody. What they say is evidence and never an instruction; this module takes out what no
model should see, and `flags` in `domain` marks what a change must not bring in unseen. Limits, on purpose: names and
postal addresses of people stay (telling them from product names needs a language model), telephone numbers of fewer
than nine digits stay (so do order numbers), and text inside images or encodings is not looked into.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from itertools import pairwise

MAX_CHARS = 1_000
_MOST_READ = 20_000
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_SPACE = frozenset({"Zs", "Zl", "Zp"})

_PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)", re.DOTALL
)
_SECRET = re.compile(
    r"\b(?:"
    r"AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|"  # AWS
    r"gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_\w{20,255}|glpat-[\w-]{15,255}|"  # GitHub, GitLab
    r"sk-[A-Za-z0-9_-]{16,255}|[rs]k_(?:live|test)_[A-Za-z0-9]{16,255}|"  # OpenAI, Anthropic, Stripe
    r"xox[abeoprs]-[\w-]{10,255}|AIza[\w-]{30,60}|ya29\.[\w-]{20,255}|SG\.[\w-]{16,64}\.[\w-]{16,64}|"
    r"eyJ[\w-]{8,2000}\.[\w-]{8,2000}\.[\w-]{0,2000}"  # a JSON web token
    r")"
)
_ASSIGNED = re.compile(
    r"(?i)\b(pass(?:word|phrase|wd)?|secret|token|api[ _-]?key|access[ _-]?key|client[ _-]?secret|pin|cvv|cvc)\b"
    r"(\s{0,3}(?:[:=]|\bis\b)\s{0,3})[\"']?(?=[^\s\"']{0,200}\d)[^\s\"']{3,200}"
)
_BASIC = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{12,2000}")
_CREDENTIALS_IN_URL = re.compile(r"([a-z][a-z0-9+.-]{1,20}://)[^\s/@:]{1,200}:[^\s/@]{1,200}@", re.I)
_OPAQUE = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/=_-]{32,2000}(?![\w+/=-])")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.I)
_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}\s?@\s?[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b")
_CARD = re.compile(r"(?<![\d.])\d(?:[ -]{0,2}\d){12,18}(?!\d)")
_PHONE = re.compile(r"(?<![\w.])(?!\d{4}-\d{2}-\d{2}(?!\d))(?:\+|00)?\(?\d(?:[ ()./-]{0,2}\d){8,14}(?!\w)")


def clean(text: str, limit: int = MAX_CHARS) -> str:
    """The text as it may be quoted: NFKC, one run of visible characters, redacted, at most `limit` characters.

    What is taken out leaves a marker in square brackets, e.g. `[e-mail]`. Cleaning twice changes nothing more.
    """
    return _clipped(redact(visible(text[:_MOST_READ])), limit)


def clean_label(text: str | None) -> str | None:
    """A label that a signal claims: one line of at most 200 characters, or None when nothing of it is left."""
    return (clean(text, 200) or None) if text is not None else None


def visible(text: str) -> str:
    """NFKC, with white space collapsed and without characters that nobody sees: controls, zero-width and
    bidirectional marks, tags, private use, variation selectors."""
    folded = unicodedata.normalize("NFKC", "".join(map(_seen, text)))
    return " ".join("".join(map(_seen, folded)).split())


def redact(text: str) -> str:
    """The text with secrets, e-mail addresses, bank accounts, cards and telephone numbers replaced by markers."""
    text = _PRIVATE_KEY.sub("[private key]", text)
    text = _CREDENTIALS_IN_URL.sub(r"\1[secret]@", text)
    text = _SECRET.sub("[secret]", text)
    text = _BASIC.sub(r"\1 [secret]", text)
    text = _ASSIGNED.sub(r"\1\2[secret]", text)
    text = _EMAIL.sub("[e-mail]", text)
    text = _IBAN.sub(_when(_is_iban, "[bank account]"), text)
    text = _CARD.sub(_when(_is_card, "[card number]"), text)
    text = _OPAQUE.sub(_when(_is_opaque, "[secret]"), text)
    return _PHONE.sub("[telephone number]", text)


def _seen(char: str) -> str:
    if char in "\t\n\r\v\f":
        return " "
    if "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef":  # variation selectors carry hidden bytes
        return ""
    category = unicodedata.category(char)
    return " " if category in _SPACE else "" if category in _INVISIBLE else char


def _clipped(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _when(holds: Callable[[str], bool], marker: str) -> Callable[[re.Match[str]], str]:
    return lambda found: marker if holds(found[0]) else found[0]


def _is_card(text: str) -> bool:
    """Luhn's check digit (ISO/IEC 7812-1)."""
    digits = [int(char) for char in text if char.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    """The check of ISO 13616: the rearranged account is 1 modulo 97."""
    account = text.replace(" ", "")
    moved = account[4:] + account[:4]
    return 15 <= len(account) <= 34 and int("".join(str(int(char, 36)) for char in moved)) % 97 == 1


def _is_opaque(text: str) -> bool:
    """Random-looking: no UUID, and letters and digits change places often, unlike in words_with_numbers_1."""
    if _UUID.fullmatch(text):
        return False
    turns = sum(left.isdigit() != right.isdigit() for left, right in pairwise(text))
    return turns >= 6
