"""What an embedder is, and the two vector helpers that everything else needs."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]

STORED_DIMENSIONS = 1024
"""Width of every stored vector; shorter models are zero-padded to it (see `pad`)."""


class EmbedderError(Exception):
    """An embedder could not answer; `retryable` tells whether asking again may help."""

    def __init__(self, reason: str, *, retryable: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retryable = retryable


class Embedder(Protocol):
    """Turns texts into vectors. Vectors of different `model`s are never compared."""

    @property
    def model(self) -> str:
        """The name recorded beside each stored vector, e.g. `wordllama-l2-supercat-256`."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of each vector."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of shape (len(texts), dimensions), float32, rows L2-normalised, in the order asked.

        A text without tokens gets an all-zero row. Raises `EmbedderError`.
        """
        ...


def normalise(vectors: Vectors) -> Vectors:
    """Rows scaled to length one; an all-zero row stays all-zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return scaled


def pad(vectors: Vectors, to: int = STORED_DIMENSIONS) -> Vectors:
    """Vectors of shape (n, d) zero-padded to (n, to). Zeros leave every cosine exactly as it was."""
    missing = to - vectors.shape[1]
    if missing < 0:
        raise ValueError(f"vectors have {vectors.shape[1]} dimensions, more than the {to} to pad to")
    return np.pad(vectors, ((0, 0), (0, missing)))


def cosine(a: Vectors, b: Vectors) -> Vectors:
    """Cosine similarity of each row of `a` (n, d) with each row of `b` (m, d): shape (n, m).

    Rows need not be normalised; an all-zero row has similarity 0 to everything.
    """
    similarities: Vectors = normalise(a) @ normalise(b).T
    return similarities
