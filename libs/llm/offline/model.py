"""The offline provider: no network, no download, deterministic, and honest about what it is."""

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import Sequence
from decimal import Decimal
from hashlib import sha256
from threading import Lock
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from libs.embeddings import StaticEmbedder, Vectors
from libs.llm.base import NOTHING_USED, ModelError, ModelReply, ModelRequest
from libs.llm.offline.extracting import extracted_by_rule
from libs.llm.offline.label_index import LabelIndex, confidences
from libs.llm.offline.labelled_prompt import parse_labels
from libs.llm.offline.messages import ProposeInput
from libs.llm.offline.refining import RefineInput, write_refinement
from libs.llm.offline.writer import write_proposal

_ALTERNATIVES = 3
InputT = TypeVar("InputT", bound=BaseModel)


class OfflineModel:
    """Answers by rule and by embedding similarity; it is not a language model and does not read instructions.

    `classify`: `system` is a Markdown prompt with a Labels section, `input` the text to classify. The
    answer is the label that the prompt describes most similarly, so a change of the prompt's labels,
    descriptions or examples changes answers, for better or worse; text outside the Labels section does not.
    Data: `{"label", "confidence", "alternatives": [{"label", "confidence"}, …]}`, the three best first. The
    confidence is a softmax of the scores at a temperature fitted on the Banking77 train split: right about as
    often as it says on prompts of that kind, and only there.

    `propose`: `input` is a `ProposeInput` as JSON, `system` is not used. The data is a `ProposalDraft`; its
    rationale says that it was written by rule.

    `refine`: `input` is a `RefineInput` as JSON, `system` is not used. The data is a `RefineDraft`: the safe fixes
    that came with the request, or a simple request by rule; its reply says so.

    `extract`: `input` is a text, `system` is not used. The data is `{"pairs": [...]}`: questions that stand in the text
    as such, with what stands below them; the reasoning of each says that it was found by rule.

    Other fields of a request are ignored: the shape of `data` is fixed and nothing is sampled. A warm
    `classify` takes about 0.2 ms on the caller's thread; a new prompt, a batch and `propose` run in a thread.
    """

    provider = "offline"
    name = "offline-1"  # raise the number whenever an answer may change: result caches are keyed by it

    def __init__(self, embedder: StaticEmbedder | None = None, *, remember: int = 32) -> None:
        """`remember`: how many prompts are kept parsed and embedded (1 kB for each label and example)."""
        self._embedder = embedder or StaticEmbedder()
        self._remember = remember
        self._prompts: OrderedDict[bytes, LabelIndex] = OrderedDict()
        self._lock = Lock()

    def most_usd(self, request: ModelRequest) -> Decimal:
        """Nothing: it runs here."""
        return Decimal(0)

    async def complete(self, request: ModelRequest) -> ModelReply:
        """See `Model.complete`. Neither of its errors can be retried: `PromptError` for a prompt without labels
        (classify), `ModelError` for an input of another shape (propose, refine)."""
        started = time.perf_counter()
        if request.task == "propose":
            data = await asyncio.to_thread(self._propose, request.input)
        elif request.task == "refine":
            data = await asyncio.to_thread(self._refine, request.input)
        elif request.task == "extract":
            data = await asyncio.to_thread(extracted_by_rule, request.input)
        else:
            index = self._known(request.system)
            if index is None:
                index = await asyncio.to_thread(self._index, request.system)
            data = _answers(index, self._embedder.embed_now([request.input]))[0]
        return self._reply(data, started)

    async def classify_many(self, system: str, inputs: Sequence[str]) -> list[ModelReply]:
        """What `complete` replies to each input, in order, in one go. `latency_ms` is the batch's mean."""
        started = time.perf_counter()
        answers = await asyncio.to_thread(self._classify, system, inputs)
        each_ms = (time.perf_counter() - started) * 1000 / max(1, len(inputs))
        return [self._said(data, each_ms) for data in answers]

    def _classify(self, system: str, inputs: Sequence[str]) -> list[dict[str, Any]]:
        return _answers(self._index(system), self._embedder.embed_now(inputs))

    def _propose(self, text: str) -> dict[str, Any]:
        return write_proposal(_read(ProposeInput, text, "propose"), self._embedder.embed_now).model_dump(mode="json")

    def _refine(self, text: str) -> dict[str, Any]:
        return write_refinement(_read(RefineInput, text, "refine")).model_dump(mode="json")

    def _known(self, system: str) -> LabelIndex | None:
        key = _key(system)
        with self._lock:
            index = self._prompts.get(key)
            if index is not None:
                self._prompts.move_to_end(key)
            return index

    def _index(self, system: str) -> LabelIndex:
        known = self._known(system)
        if known is not None:
            return known
        index = LabelIndex.build(parse_labels(system), self._embedder.embed_now)
        with self._lock:
            self._prompts[_key(system)] = index
            while len(self._prompts) > self._remember:
                self._prompts.popitem(last=False)
        return index

    def _reply(self, data: dict[str, Any], started: float) -> ModelReply:
        return self._said(data, (time.perf_counter() - started) * 1000)

    def _said(self, data: dict[str, Any], latency_ms: float) -> ModelReply:
        return ModelReply(
            text=json.dumps(data, ensure_ascii=False),
            data=data,
            usage=NOTHING_USED,  # no tokens are bought, so none are counted
            model=self.name,
            provider=self.provider,
            latency_ms=latency_ms,
        )


def _read(model: type[InputT], text: str, task: str) -> InputT:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        field = ".".join(str(step) for step in first["loc"]) or "document"
        raise ModelError(f"{task} input, {field}: {first['msg']}", retryable=False) from None


def _answers(index: LabelIndex, vectors: Vectors) -> list[dict[str, Any]]:
    """The best labels of each row, the label that the prompt names first winning a tie."""
    scores = index.scores(vectors)
    shares = confidences(scores).round(4)
    best = (-scores).argsort(axis=1, kind="stable")[:, :_ALTERNATIVES]
    return [_answer(index, row, best[at]) for at, row in enumerate(shares)]


def _answer(index: LabelIndex, shares: Any, best: Any) -> dict[str, Any]:
    ranked = [{"label": index.names[label], "confidence": float(shares[label])} for label in best]
    return {**ranked[0], "alternatives": ranked}


def _key(system: str) -> bytes:
    return sha256(system.encode("utf-8", "surrogatepass")).digest()


def open_offline(name: str) -> OfflineModel:
    """The one offline model there is, whatever name a touchpoint gives it."""
    return OfflineModel()
