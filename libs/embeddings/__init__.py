"""Text to vectors, by one of several embedders behind one interface."""

from libs.embeddings.base import (
    STORED_DIMENSIONS,
    Embedder,
    EmbedderError,
    Vectors,
    cosine,
    normalise,
    pad,
)
from libs.embeddings.factory import embedder_from
from libs.embeddings.static import StaticEmbedder

__all__ = [
    "STORED_DIMENSIONS",
    "Embedder",
    "EmbedderError",
    "StaticEmbedder",
    "Vectors",
    "cosine",
    "embedder_from",
    "normalise",
    "pad",
]
