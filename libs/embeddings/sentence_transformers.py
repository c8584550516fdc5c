"""Embeddings by a local sentence-transformers model (extra `sentence-transformers`)."""

import asyncio
from collections.abc import Sequence
from functools import cached_property
from pathlib import PurePath
from threading import Lock
from typing import Any

import numpy as np

from libs.embeddings.base import EmbedderError, Vectors, normalise

_EXTRA = (
    "the sentence-transformers embedder needs the extra 'sentence-transformers': "
    "pip install 'burnish[sentence-transformers]'"
)


class SentenceTransformersEmbedder:
    """A model that sentence-transformers can load, by name or folder. Loaded at the first use, in a thread.

    The first use of a name that is not in the local cache downloads the model; `local_only` refuses that.
    """

    def __init__(self, name: str = "all-MiniLM-L6-v2", *, device: str | None = None, local_only: bool = False) -> None:
        """`device`: as torch names it, e.g. `cpu`, `cuda`; None lets the library choose."""
        self.model = f"sentence-transformers-{PurePath(name).name}"
        self._name = name
        self._device = device
        self._local_only = local_only
        self._lock = Lock()

    @property
    def dimensions(self) -> int:
        """Length of each vector. Loads the model when it is not loaded yet; later calls neither compute nor wait."""
        return self._width

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Runs in a thread, one batch at a time. The model cuts texts at its own limit."""
        return await asyncio.to_thread(self._embed, list(texts))

    def _embed(self, texts: list[str]) -> Vectors:
        if not texts:
            return np.zeros((0, self._width), dtype=np.float32)
        vectors = self._encode(texts)
        vectors[[not text.strip() for text in texts]] = 0.0
        return normalise(vectors)

    def _encode(self, texts: list[str]) -> Vectors:
        with self._lock:
            raw = self._loaded.encode(texts, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(raw, dtype=np.float32)

    @cached_property
    def _width(self) -> int:
        return int(self._encode([""]).shape[1])

    @cached_property
    def _loaded(self) -> Any:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise EmbedderError(_EXTRA) from error
        try:
            return SentenceTransformer(self._name, device=self._device, local_files_only=self._local_only)
        except Exception as error:  # what torch and transformers raise for a wrong name or device has no common base
            device = f"the device '{self._device}'" if self._device else "a device of its choice"
            raise EmbedderError(
                f"sentence-transformers cannot load the model '{self._name}' on {device} "
                f"({type(error).__name__}): expected the name of a published model "
                "or a folder that holds one, and a device that this torch supports"
            ) from error
