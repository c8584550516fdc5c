"""The sentence-transformers embedder on a real model, made here from the wordllama vectors: no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from libs.embeddings import EmbedderError, StaticEmbedder
from libs.embeddings.sentence_transformers import SentenceTransformersEmbedder
from libs.embeddings.static import _weights

pytestmark = [
    pytest.mark.skipif(
        find_spec("sentence_transformers") is None,
        reason="needs the extra 'sentence-transformers': pip install 'burnish[sentence-transformers]'",
    ),
    pytest.mark.filterwarnings("default"),  # torch and transformers warn about themselves
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import (
        StaticEmbedding,
    )

    weights = _weights()
    static = StaticEmbedding(weights.tokenizer, embedding_weights=weights.tokens.copy())
    path = tmp_path_factory.mktemp("model") / "tiny-static"
    SentenceTransformer(modules=[static], device="cpu").save_pretrained(str(path))
    return path


async def test_vectors_are_unit_rows_in_order_and_blank_is_zero(folder: Path) -> None:
    texts = ["card lost", " ", "what is the exchange rate", "top up"]
    ours = SentenceTransformersEmbedder(str(folder), device="cpu", local_only=True)
    vectors = await ours.embed(texts)
    assert ours.model == "sentence-transformers-tiny-static"
    assert vectors.shape == (4, ours.dimensions) == (4, 256)
    np.testing.assert_allclose(vectors, StaticEmbedder().embed_now(texts), atol=1e-4)
    assert (await ours.embed([])).shape == (0, 256)


async def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    ours = SentenceTransformersEmbedder(str(tmp_path / "nothing"), device="cpu", local_only=True)
    with pytest.raises(EmbedderError, match="nothing"):
        await ours.embed(["card"])
