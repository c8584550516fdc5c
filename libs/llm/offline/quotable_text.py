"""Makes a signal's text safe to quote in a prompt as one example, or says why it is not. Pure.

Signals are untrusted: a text may try to be Markdown structure, to hide characters, or to instruct a model.
"""

import re
import unicodedata

from libs.llm.offline.labelled_prompt import unquoted

MAX_CHARS = 200

_SPACE = frozenset({"Zs", "Zl", "Zp"})
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs", "Cn"})
_CONTROL = re.compile(r"```+|~~~+|<!--|-->")
_LEADING = re.compile(r"^[\s#\->*+=|_`~:]+")
_ADDRESS = re.compile(
    r"[a-z][a-z0-9+.-]*://|\bwww\.|\bmailto:|\bjavascript:|\S@\S|"
    r"\b[a-z0-9-]+\.(?:com|net|org|io|ai|app|dev|co|info|biz|xyz|ru|cn|top|me|ly)\b",
    re.IGNORECASE,
)
_LONG_NUMBER = re.compile(r"\d(?:[ .\-/]?\d){7,}")
_INSTRUCTION = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|overrule)\b.{0,60}"
    r"\b(?:previous|prior|above|earlier|preceding|instructions?|prompts?|rules?|guidelines?|everything|all)\b|"
    r"\b(?:system|developer)\s+(?:prompt|message|mode|instructions?)\b|"
    r"\b(?:you are now|from now on|pretend (?:to be|you)|act as|jailbreak|new instructions?)\b|"
    r"\b(?:always|only|must)\s+(?:answer|respond|reply|output|return|classify)\b|"
    r"\b(?:answer|respond|reply|output)\s+(?:only|always|with)\b|"
    r"^\s*(?:system|assistant|user|human|developer)\s*:|"
    r"<\|.*?\|>|\[/?inst\]|</?(?:system|assistant|instructions?|prompt)\b",
    re.IGNORECASE,
)


def quotable(text: str) -> str | None:
    """The text as one clean line of at most 200 characters, or None when it must not be quoted.

    Left out is what is empty once cleaned, contains an address (URL, e-mail) or a number of eight or more
    digits (cards, accounts, telephones), or reads like an instruction to a model.
    """
    line = clean_line(text)
    folded = unicodedata.normalize("NFKC", line)
    if any(pattern.search(folded) for pattern in (_ADDRESS, _LONG_NUMBER, _INSTRUCTION)):
        return None
    return clean_line(clip(line)) or None


def clean_line(text: str) -> str:
    """One line without invisible characters, Markdown fences or leading Markdown control."""
    visible = "".join(_visible(char) for char in text)
    line = " ".join(visible.split())
    previous = None
    while line != previous:  # removing one mark may join the halves of another
        previous = line
        line = unquoted(_LEADING.sub("", _CONTROL.sub("", line)).strip())
    return line


def clip(line: str) -> str:
    """At most 200 characters, cut between words where there is a space to cut at."""
    if len(line) <= MAX_CHARS:
        return line
    head = line[:MAX_CHARS]
    return (head.rsplit(" ", 1)[0] if line[MAX_CHARS] != " " and " " in head else head).rstrip()


def _visible(char: str) -> str:
    if char in "\t\n\r\v\f":
        return " "
    category = unicodedata.category(char)
    if category in _SPACE:
        return " "
    return "" if category in _INVISIBLE else char
