"""Embeddings over the OpenAI wire format, `POST {base_url}/embeddings`.

Any endpoint that speaks it will do. The address comes from configuration only, never from data.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from libs.embeddings.base import EmbedderError, Vectors, normalise

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class OpenAIEmbedder:
    """A model behind an OpenAI-compatible endpoint, asked in batches, a few at a time.

    The client retries what may succeed later (429, 5xx, connection) with back-off; what still fails is an
    `EmbedderError` whose `retryable` tells the two apart. Texts never appear in an error.
    """

    def __init__(
        self,
        name: str = "text-embedding-3-small",
        *,
        dimensions: int = 1024,
        base_url: str | None = None,
        api_key: str | None = None,
        batch: int = 256,
        at_once: int = 4,
        timeout_s: float = 60.0,
        max_retries: int = 3,
    ) -> None:
        """`base_url` and `api_key`: None takes `OPENAI_BASE_URL` and `OPENAI_API_KEY`.

        `dimensions` is asked of the endpoint and checked in its answer. Raises `EmbedderError` without a key.
        """
        self.model = f"openai-{name}-{dimensions}"
        self.dimensions = dimensions
        self._name = name
        self._batch = batch
        self._gate = asyncio.Semaphore(at_once)
        self._client = _client(base_url, api_key, timeout_s, max_retries)

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`. Blank texts, which the endpoint refuses, are not sent and get a zero row."""
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        filled = [row for row, text in enumerate(texts) if text.strip()]
        batches = [filled[start : start + self._batch] for start in range(0, len(filled), self._batch)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._ask([texts[row] for row in rows])) for rows in batches]
        except ExceptionGroup as failed:  # the other batches are cancelled; callers hear of the first failure
            raise failed.exceptions[0] from failed
        for rows, task in zip(batches, tasks, strict=True):
            vectors[rows] = task.result()
        return normalise(vectors)

    async def _ask(self, texts: list[str]) -> Vectors:
        import openai

        async with self._gate:
            try:
                answer = await self._client.embeddings.create(
                    model=self._name, input=texts, dimensions=self.dimensions, encoding_format="float"
                )
            except openai.APIStatusError as error:
                raise _status_error(error.status_code) from error
            except openai.APIConnectionError as error:
                raise EmbedderError("the embeddings endpoint cannot be reached", retryable=True) from error
        by_index = {item.index: item.embedding for item in answer.data}
        return self._checked(by_index, len(texts))

    def _checked(self, by_index: dict[int, list[float]], asked: int) -> Vectors:
        if set(by_index) != set(range(asked)):
            raise EmbedderError(f"the embeddings endpoint answered {len(by_index)} of {asked} texts")
        lengths = {len(vector) for vector in by_index.values()}
        if lengths != {self.dimensions}:
            raise EmbedderError(
                f"the embeddings endpoint answered vectors of {sorted(lengths)} dimensions, expected "
                f"{self.dimensions}: set `dimensions` to what the model gives"
            )
        return np.array([by_index[index] for index in range(asked)], dtype=np.float32)

    async def close(self) -> None:
        """Closes the connections to the endpoint."""
        await self._client.close()


def _client(base_url: str | None, api_key: str | None, timeout_s: float, max_retries: int) -> "AsyncOpenAI":
    import openai  # takes a second, and the default embedder needs none of it

    try:
        return openai.AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=timeout_s, max_retries=max_retries)
    except openai.OpenAIError as error:
        raise EmbedderError("the openai embedder needs an API key: set `api_key` or OPENAI_API_KEY") from error


def _status_error(status: int) -> EmbedderError:
    return EmbedderError(
        f"the embeddings endpoint answered HTTP {status}",
        retryable=status in (408, 409, 429) or status >= 500,
    )
