"""The form of a vector in a column, padded to the width of all."""

from __future__ import annotations

import numpy as np

from libs.embeddings import STORED_DIMENSIONS
from services.pattern_detector.domain import Vector


def written(vector: Vector | None) -> str | None:
    """A vector as pgvector reads it from text; none stays none."""
    if vector is None:
        return None
    padding = ",0" * (STORED_DIMENSIONS - len(vector))
    return f"[{','.join(map(repr, vector.tolist()))}{padding}]"


def read(sent: bytes | None) -> Vector | None:
    """pgvector's binary form: two 16-bit integers (dimensions, unused), then big-endian 32-bit floats."""
    return None if sent is None else np.frombuffer(sent, dtype=">f4", offset=4).astype(np.float32)
