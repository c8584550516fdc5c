"""The static embedder: same vectors as the package's own, in any batch, thread and process; no network."""

import asyncio
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from libs.embeddings import StaticEmbedder, cosine

SENTENCES = [
    "I am still waiting on my card",
    "My card has not arrived yet",
    "What is the exchange rate for euros?",
    "¿Dónde está mi tarjeta? 💳",
]


@pytest.fixture
def embedder() -> StaticEmbedder:
    return StaticEmbedder()


def test_rows_are_unit_vectors_of_the_named_width(embedder: StaticEmbedder) -> None:
    vectors = embedder.embed_now(SENTENCES)
    assert vectors.shape == (4, embedder.dimensions) == (4, 256)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_what_means_the_same_is_closer(embedder: StaticEmbedder) -> None:
    similar = cosine(embedder.embed_now(SENTENCES), embedder.embed_now(SENTENCES))
    assert similar[0, 1] > similar[0, 2] + 0.2


@pytest.mark.parametrize("blank", ["", " ", "\n\t \u00a0"])
def test_text_without_tokens_is_a_zero_row(embedder: StaticEmbedder, blank: str) -> None:
    vectors = embedder.embed_now([blank, "card"])
    assert not vectors[0].any()
    assert vectors[1].any()
    assert not embedder.embed_now([blank]).any()


def test_no_texts_give_no_rows(embedder: StaticEmbedder) -> None:
    assert embedder.embed_now([]).shape == (0, 256)


def test_vectors_are_those_of_the_package(embedder: StaticEmbedder) -> None:
    import logging

    import wordllama

    handlers = list(logging.getLogger().handlers)
    try:
        package = os.path.dirname(wordllama.__file__)
        own = wordllama.WordLlama.load(cache_dir=package, disable_download=True)
        np.testing.assert_allclose(embedder.embed_now(SENTENCES), own.embed(SENTENCES, norm=True), atol=1e-6)
    finally:  # importing the package installs a root handler, which the embedder itself avoids
        logging.getLogger().handlers[:] = handlers


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(max_size=40), min_size=2, max_size=12))
def test_a_vector_does_not_depend_on_its_batch(texts: list[str]) -> None:
    together = StaticEmbedder().embed_now(texts)
    alone = np.concatenate([StaticEmbedder(remember=0).embed_now([text]) for text in texts])
    np.testing.assert_array_equal(together, alone)


async def test_a_large_batch_leaves_the_loop_free(embedder: StaticEmbedder) -> None:
    many = [f"{SENTENCES[i % 4]} {i}" for i in range(2000)]
    turns = 0
    task = asyncio.create_task(embedder.embed(many))
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    assert turns > 3
    np.testing.assert_array_equal(task.result(), embedder.embed_now(many))


async def test_small_and_single_asks_give_the_same(embedder: StaticEmbedder) -> None:
    first = await embedder.embed(SENTENCES[:1])
    again = await embedder.embed(SENTENCES[:1])
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[0], (await embedder.embed(SENTENCES))[0])


def test_a_caller_cannot_change_what_is_remembered(embedder: StaticEmbedder) -> None:
    given_out = embedder.embed_now(["card"])
    given_out[:] = 0
    embedder.embed_now(["card"])[:] = 0
    assert embedder.embed_now(["card"]).any()


def test_the_memory_of_single_texts_is_bounded() -> None:
    embedder = StaticEmbedder(remember=3)
    for number in range(10):
        embedder.embed_now([f"text {number}"])
    assert list(embedder._remembered) == ["text 7", "text 8", "text 9"]


def test_a_very_long_text_is_cut_not_refused(embedder: StaticEmbedder) -> None:
    long = "card " * 200_000
    np.testing.assert_allclose(np.linalg.norm(embedder.embed_now([long])), 1, atol=1e-5)
    assert long not in embedder._remembered


def test_threads_agree(embedder: StaticEmbedder) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: embedder.embed_now(SENTENCES), range(8)))
    assert all((result == results[0]).all() for result in results)


PROBE = """
import hashlib, logging, socket, sys
def refuse(*args, **kwargs): raise AssertionError("network was tried")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from libs.embeddings import StaticEmbedder
vectors = StaticEmbedder().embed_now(["I am still waiting on my card", "exchange rate"])
assert not logging.getLogger().handlers, "a root log handler was installed"
assert "torch" not in sys.modules and "wordllama" not in sys.modules
print(hashlib.sha256(vectors.tobytes()).hexdigest())
"""


def test_processes_agree_and_none_tries_the_network(tmp_path: "os.PathLike[str]") -> None:
    digests = {_probe(seed, home=os.fspath(tmp_path)) for seed in ("1", "2")}
    assert len(digests) == 1


def _probe(seed: str, home: str) -> str:
    env = {**os.environ, "PYTHONHASHSEED": seed, "HOME": home, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROBE], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_warning_is_raised_for_blank_texts(embedder: StaticEmbedder) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embedder.embed_now(["", " "])
