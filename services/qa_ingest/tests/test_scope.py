"""Expressions over tags."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.qa_ingest.domain.scope import BadExpression, Every, Expression, Not, Some, Tag, holds, parse, positive

A, B, C = Tag("a"), Tag("b"), Tag("c")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("a", A),
        ("a OR b AND c", Some((A, Every((B, C))))),
        ("(a or b) and not c", Every((Some((A, B)), Not(C)))),
        ("NOT NOT a", Not(Not(A))),
        ('"two words" AND "and"', Every((Tag("two words"), Tag("and")))),
        (r'"a \" quote"', Tag('a " quote')),
        ("a-b_c.d", Tag("a-b_c.d")),
    ],
)
def test_expressions(text: str, expression: Expression) -> None:
    assert parse(text) == expression


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "it is empty"),
        ("a AND", "the end: a tag"),
        ("a b", "character 3: AND or OR"),
        ("(a", "the end: a `)`"),
        ("a)", "character 2: AND or OR"),
        ("AND a", "character 1: a tag"),
        ('"a', "character 1: a quote"),
        ('""', "character 1: an empty tag"),
        ("NOT " * 40 + "a", "nested deeper"),
        ("a OR " * 101 + "a", "more than 200 words"),
    ],
)
def test_mistakes_have_their_place(text: str, told: str) -> None:
    with pytest.raises(BadExpression, match=told.replace("(", r"\(").replace(")", r"\)")):
        parse(text)


def test_what_is_asked_for() -> None:
    assert positive(parse("a AND NOT (b OR NOT c)")) == {"a", "c"}


TAGS = st.sampled_from(["a", "b", "c"])
TREES: st.SearchStrategy[Expression] = st.recursive(
    TAGS.map(Tag),
    lambda inner: st.one_of(
        inner.map(Not),
        st.tuples(inner, inner).map(Every),
        st.tuples(inner, inner).map(Some),
    ),
    max_leaves=8,
)


def written(expression: Expression) -> str:
    if isinstance(expression, Tag):
        return expression.name
    if isinstance(expression, Not):
        return f"NOT ({written(expression.of)})"
    return "(" + (" AND " if isinstance(expression, Every) else " OR ").join(map(written, expression.of)) + ")"


@given(TREES, st.frozensets(TAGS))
def test_what_is_written_means_the_same(expression: Expression, tags: frozenset[str]) -> None:
    assert holds(parse(written(expression)), tags) == holds(expression, tags)
