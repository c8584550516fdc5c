"""What a query says: words of which one should be there, phrases that must, and words that must not. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

SHORT_WORDS = 2
MAX_PARTS = 100
_PART = re.compile(r"(-?)\"([^\"]{1,200})\"|(-?)(\S+)")
_WORD = re.compile(r"\w+")

# Words that hold a sentence together and name nothing. "Up", "off" or "not" are none of them: they can be the point.
EMPTY = frozenset((
    *("a", "an", "the", "this", "that", "these", "those", "some", "any", "each", "every", "all"),
    *("i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "ourselves", "you", "your", "yours", "yourself"),
    *("he", "him", "his", "she", "her", "hers", "it", "its", "itself"),
    *("they", "them", "their", "theirs"),
    *("am", "is", "are", "was", "were", "be", "been", "being", "do", "does", "did", "doing", "have", "has", "had"),
    *("having", "can", "could", "may", "might", "must", "shall", "should", "will", "would"),
    *("what", "which", "who", "whom", "whose", "when", "where", "why", "how"),
    *("and", "or", "but", "if", "then", "than", "so", "as", "of", "to", "in", "on", "at", "by", "for", "with"),
    *("from", "about", "into"),
    *("there", "here", "just", "very", "too", "also", "please", "s", "t", "d", "ll", "m", "re", "ve"),
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A query taken apart. `text` is what is left of it without its operators."""

    text: str
    words: tuple[str, ...]
    phrases: tuple[str, ...]
    banned: tuple[str, ...]

    @property
    def says_something(self) -> bool:
        """Is there a word in it that names something? If not, nothing but the question itself is an answer to it."""
        return bool(self.words or self.phrases)

    @property
    def is_short(self) -> bool:
        """So few words that letters say more than lexemes."""
        return len(self.text.split()) <= SHORT_WORDS


def read(query: str) -> Asked:
    """Quotes hold a phrase together, which then must be there; a leading `-` excludes.

    A single word is looked for whatever it is; among several, those of `EMPTY` are not.
    """
    said: list[str] = []
    phrases: list[str] = []
    banned: list[str] = []
    for minus, phrase, other_minus, word in _PART.findall(query)[:MAX_PARTS]:
        part = phrase or word
        inner = " ".join(_WORD.findall(part))
        if not inner:
            continue
        if minus or other_minus:
            banned.append(inner)
            continue
        said.append(part)
        if phrase:
            phrases.append(inner)
    text = " ".join(said)
    words = list(dict.fromkeys(_WORD.findall(text.casefold())))
    telling = words if len(words) == 1 else [word for word in words if word not in EMPTY]
    return Asked(text, tuple(telling), tuple(phrases), tuple(banned))
