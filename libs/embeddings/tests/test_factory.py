"""Choosing an embedder by configuration."""

from importlib.util import find_spec

import pytest

from libs.embeddings import EmbedderError, StaticEmbedder, embedder_from


@pytest.mark.parametrize("settings", ["static", {"kind": "static", "remember": 5}])
def test_static_is_made_from_a_name_or_a_mapping(settings: str | dict[str, object]) -> None:
    assert isinstance(embedder_from(settings), StaticEmbedder)
    assert embedder_from().model == "wordllama-l2-supercat-256"


@pytest.mark.parametrize("settings", ["fancy", {}, {"kind": None}, {"kind": 7}])
def test_an_unknown_kind_names_the_known_ones(settings: str | dict[str, object]) -> None:
    with pytest.raises(EmbedderError, match="expected one of static, sentence-transformers, openai"):
        embedder_from(settings)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(EmbedderError, match="embedder 'static': got an unexpected keyword argument 'colour'"):
        embedder_from({"kind": "static", "colour": "secret"})


@pytest.mark.skipif(find_spec("sentence_transformers") is not None, reason="the extra is installed")
async def test_without_its_extra_sentence_transformers_names_the_extra() -> None:
    with pytest.raises(EmbedderError, match=r"pip install 'burnish\[sentence-transformers\]'"):
        await embedder_from("sentence-transformers").embed(["x"])
