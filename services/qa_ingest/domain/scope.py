"""Which tags a row must have: boolean expressions such as `(export OR import) AND NOT pricing`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_TOKENS = 200
MAX_DEPTH = 30
_TOKEN = re.compile(r"\s*(?:(\()|(\))|\"((?:[^\"\\]|\\.)*)\"|([^\s()\"]+))")


class BadExpression(ValueError):
    """An expression that cannot be read: where, and what would be right."""


@dataclass(frozen=True, slots=True)
class Tag:
    """The row has this tag."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """The row is not so."""

    of: Expression


@dataclass(frozen=True, slots=True)
class Every:
    """The row is all of these."""

    of: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """The row is at least one of these."""

    of: tuple[Expression, ...]


Expression = Tag | Not | Every | Some


def parse(text: str) -> Expression:
    """An expression of tags with AND, OR, NOT and parentheses; a tag with spaces stands in double quotes.

    NOT binds closer than AND, AND closer than OR. Raises `BadExpression`.
    """
    parser = _Parser(_tokens(text))
    found = parser.any_of(0)
    parser.at_end()
    return found


def positive(expression: Expression) -> frozenset[str]:
    """The tags that are asked for: those under an even number of NOTs."""
    return frozenset(_signed(expression, True))


def holds(expression: Expression, tags: frozenset[str]) -> bool:
    """Does it hold for a row with these tags?"""
    if isinstance(expression, Tag):
        return expression.name in tags
    if isinstance(expression, Not):
        return not holds(expression.of, tags)
    test = all if isinstance(expression, Every) else any
    return test(holds(each, tags) for each in expression.of)


def _signed(expression: Expression, asked: bool) -> list[str]:
    if isinstance(expression, Tag):
        return [expression.name] if asked else []
    if isinstance(expression, Not):
        return _signed(expression.of, not asked)
    return [name for each in expression.of for name in _signed(each, asked)]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    at: int
    quoted: bool = False

    def says(self, word: str) -> bool:
        return not self.quoted and self.text.upper() == word


@dataclass(slots=True)
class _Parser:
    tokens: list[_Token]
    next: int = field(default=0)

    def any_of(self, depth: int) -> Expression:
        parts = [self.all_of(depth)]
        while self._takes("OR"):
            parts.append(self.all_of(depth))
        return parts[0] if len(parts) == 1 else Some(tuple(parts))

    def all_of(self, depth: int) -> Expression:
        parts = [self.one(depth)]
        while self._takes("AND"):
            parts.append(self.one(depth))
        return parts[0] if len(parts) == 1 else Every(tuple(parts))

    def one(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise BadExpression(f"nested deeper than {MAX_DEPTH}")
        if self._takes("NOT"):
            return Not(self.one(depth + 1))
        if self._takes("("):
            inner = self.any_of(depth + 1)
            if not self._takes(")"):
                raise BadExpression(f"{self._place()}: a `)` is missing")
            return inner
        token = self.tokens[self.next] if self.next < len(self.tokens) else None
        if token is None or any(token.says(word) for word in ("AND", "OR", ")")):
            raise BadExpression(f"{self._place()}: a tag, NOT or `(` was expected")
        self.next += 1
        return Tag(token.text)

    def at_end(self) -> None:
        if self.next < len(self.tokens):
            raise BadExpression(f"{self._place()}: AND or OR was expected")

    def _takes(self, word: str) -> bool:
        if self.next < len(self.tokens) and self.tokens[self.next].says(word):
            self.next += 1
            return True
        return False

    def _place(self) -> str:
        token = self.tokens[self.next] if self.next < len(self.tokens) else None
        return f"character {token.at + 1}" if token else "the end"


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise BadExpression(f"character {at + 1}: a quote without its end")
        quoted = found[3] is not None
        said = re.sub(r"\\(.)", r"\1", found[3]) if quoted else found[0].strip()
        if quoted and not said.strip():
            raise BadExpression(f"character {at + 1}: an empty tag")
        tokens.append(_Token(said, found.end() - len(found[0].lstrip()), quoted))
        if len(tokens) > MAX_TOKENS:
            raise BadExpression(f"more than {MAX_TOKENS} words")
        at = found.end()
    if not tokens:
        raise BadExpression("it is empty")
    return tokens
