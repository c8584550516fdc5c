"""The sentence-transformers embedder on a real model, made here from the wordllama vectors: no download."""

import logging
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from libs.embeddings import EmbedderError, StaticEmbedder
from libs.embeddings.sentence_transformers import SentenceTransformersEmbedder
from libs.embeddings.static import _weights

pytestmark = pytest.mark.skipif(
    find_spec("sentence_transformers") is None,
    reason="needs the extra 'sentence-transformers': pip install 'burnish[sentence-transformers]'",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

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


async def test_a_device_that_is_not_there_is_named(folder: Path) -> None:
    ours = SentenceTransformersEmbedder(str(folder), device="abacus", local_only=True)
    with pytest.raises(EmbedderError, match="'abacus'"):
        await ours.embed(["card"])


async def test_the_dimensions_do_not_wait_for_a_batch_in_progress(folder: Path) -> None:
    ours = SentenceTransformersEmbedder(str(folder), device="cpu", local_only=True)
    assert ours.dimensions == 256
    with ours._lock:  # what a batch holds while it is embedded
        assert ours.dimensions == 256
        assert (await ours.embed([])).shape == (0, 256)


async def test_no_progress_bar_at_any_log_level(
    folder: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="sentence_transformers")
    ours = SentenceTransformersEmbedder(str(folder), device="cpu", local_only=True)
    await ours.embed([])
    await ours.embed(["card lost"])
    assert "Batches" not in "".join(capsys.readouterr())
