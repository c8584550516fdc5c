"""The embedded default: static token vectors from the wordllama wheel. No torch, no download, no network.

The two data files of the wheel are read directly. Importing `wordllama` itself would install a root log
handler, and its loader looks for the tokenizer in a folder that does not exist and then asks the network;
this way there is nothing that could. The vectors are the same (a test compares them with the package's own).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from threading import Lock

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

from libs.embeddings.base import EmbedderError, Vectors, normalise

_WEIGHTS = Path("weights", "l2_supercat_256.safetensors")
_TOKENIZER = Path("tokenizers", "l2_supercat_tokenizer_config.json")

_CHUNK = 256
"""Texts tokenised at a time: bounds the gathered token vectors to a few MB for ordinary texts."""

_THREAD_ABOVE = 64
"""Batches larger than this (about 5 ms of work) leave the event loop for a thread."""

_MAX_CHARS = 20_000
"""Longer texts are cut: an average over this many characters no longer moves, and memory stays bounded."""

_REMEMBERED_CHARS = 2_000
"""Longer texts are not kept in the cache of single texts, so the cache stays below about 10 MB."""


@dataclass(frozen=True)
class _Weights:
    tokenizer: Tokenizer
    tokens: Vectors


_loading = Lock()


@lru_cache(maxsize=1)
def _read_weights() -> _Weights:
    spec = find_spec("wordllama")
    if spec is None or spec.origin is None:
        raise EmbedderError("the static embedder needs the package wordllama==0.4.0.post1, which is not installed")
    package = Path(spec.origin).parent
    for file in (_WEIGHTS, _TOKENIZER):
        if not (package / file).is_file():
            raise EmbedderError(f"wordllama is installed without {file}: expected version 0.4.0.post1")
    with safe_open(str(package / _WEIGHTS), framework="np") as tensors:
        tokens = tensors.get_tensor("embedding.weight").astype(np.float32)
    return _Weights(Tokenizer.from_file(str(package / _TOKENIZER)), tokens)


def _weights() -> _Weights:
    """The token vectors and the tokenizer, read once per process (about 0.3 s and 50 MB)."""
    with _loading:
        return _read_weights()


class StaticEmbedder:
    """Mean of static token vectors (WordLlama `l2_supercat`, 256 dimensions), L2-normalised.

    Deterministic: a text's vector does not depend on the batch it came in, the thread or the process.
    Instances are cheap and share the weights, which are read at the first use.
    """

    model = "wordllama-l2-supercat-256"
    dimensions = 256

    def __init__(self, *, remember: int = 2048) -> None:
        """`remember`: how many single texts are kept with their vector (1 kB each); 0 keeps none."""
        self._remember = remember
        self._remembered: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = Lock()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Large batches, and the first call, run in a thread."""
        if len(texts) > _THREAD_ABOVE or _read_weights.cache_info().currsize == 0:
            return await asyncio.to_thread(self.embed_now, texts)
        return self.embed_now(texts)

    def embed_now(self, texts: Sequence[str]) -> Vectors:
        """The same as `embed`, for callers that are not on an event loop. Thread-safe."""
        if len(texts) == 1:
            return self._single(texts[0])
        chunks = [_embed(texts[start : start + _CHUNK]) for start in range(0, len(texts), _CHUNK)]
        return np.concatenate(chunks) if chunks else np.zeros((0, self.dimensions), dtype=np.float32)

    def _single(self, text: str) -> Vectors:
        with self._lock:
            known = self._remembered.get(text)
            if known is not None:
                self._remembered.move_to_end(text)
                return known.copy()
        vector = _embed([text])
        if self._remember and len(text) <= _REMEMBERED_CHARS:
            with self._lock:
                self._remembered[text] = vector.copy()
                while len(self._remembered) > self._remember:
                    self._remembered.popitem(last=False)
        return vector


def _embed(texts: Sequence[str]) -> Vectors:
    """Mean token vector per text: gather all tokens of the batch, sum each text's run, normalise."""
    weights = _weights()
    ids = [_token_ids(weights.tokenizer, text) for text in texts]
    vectors = np.zeros((len(texts), weights.tokens.shape[1]), dtype=np.float32)
    filled = [row for row, tokens in enumerate(ids) if tokens]
    if filled:
        lengths = [len(ids[row]) for row in filled]
        starts = np.cumsum([0, *lengths[:-1]])
        gathered = weights.tokens[list(chain.from_iterable(ids[row] for row in filled))]
        vectors[filled] = np.add.reduceat(gathered, starts, axis=0)
    return normalise(vectors)


def _token_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    if not text.strip():
        return []
    return tokenizer.encode(text[:_MAX_CHARS], add_special_tokens=False).ids
