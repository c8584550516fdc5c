"""Which embedder a configuration means."""

from collections.abc import Callable, Mapping
from typing import Any

from libs.embeddings.base import Embedder, EmbedderError
from libs.embeddings.openai import OpenAIEmbedder
from libs.embeddings.sentence_transformers import SentenceTransformersEmbedder
from libs.embeddings.static import StaticEmbedder

_KINDS: dict[str, Callable[..., Embedder]] = {
    "static": StaticEmbedder,
    "sentence-transformers": SentenceTransformersEmbedder,
    "openai": OpenAIEmbedder,
}


def embedder_from(settings: str | Mapping[str, Any] = "static") -> Embedder:
    """The embedder of a kind, `static`, `sentence-transformers` or `openai`.

    A mapping names the kind under `kind` and gives the constructor's arguments beside it, for example
    `{"kind": "openai", "name": "text-embedding-3-large", "dimensions": 1024}`. Raises `EmbedderError` naming
    what is unknown or missing.
    """
    options = {"kind": settings} if isinstance(settings, str) else dict(settings)
    kind = options.pop("kind", None)
    make = _KINDS.get(kind) if isinstance(kind, str) else None
    if make is None:
        raise EmbedderError(f"embedder kind {kind!r} is unknown: expected one of {', '.join(_KINDS)}")
    try:
        return make(**options)
    except TypeError as error:
        # "__init__() got an unexpected keyword argument 'x'" names the option and never its value
        raise EmbedderError(f"embedder '{kind}': {str(error).split('__init__() ')[-1]}") from error
