"""Padding and cosine: the two laws that stored vectors rest on."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from libs.embeddings import cosine, normalise, pad

numbers = st.floats(-10, 10, width=32).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
vectors = arrays(np.float32, st.tuples(st.integers(1, 5), st.just(8)), elements=numbers)


@given(vectors, vectors)
def test_padding_keeps_every_cosine(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_allclose(cosine(pad(a, 32), pad(b, 32)), cosine(a, b), atol=1e-6)


@given(vectors)
def test_cosine_lies_between_minus_one_and_one_and_is_symmetric(a: np.ndarray) -> None:
    similarities = cosine(a, a)
    assert np.abs(similarities).max() <= 1 + 1e-5
    np.testing.assert_allclose(similarities, similarities.T, atol=1e-6)


def test_padding_appends_zeros_up_to_the_stored_width() -> None:
    padded = pad(np.ones((2, 256), dtype=np.float32))
    assert padded.shape == (2, 1024)
    assert padded.dtype == np.float32
    assert padded[:, :256].all()
    assert not padded[:, 256:].any()


def test_padding_to_less_than_there_is_says_so() -> None:
    with pytest.raises(ValueError, match="8 dimensions, more than the 4"):
        pad(np.ones((1, 8), dtype=np.float32), to=4)


def test_a_zero_row_is_similar_to_nothing() -> None:
    rows = np.array([[0, 0], [3, 4]], dtype=np.float32)
    assert normalise(rows).tolist() == [[0, 0], [np.float32(0.6), np.float32(0.8)]]
    assert cosine(rows, rows)[0].tolist() == [0, 0]
