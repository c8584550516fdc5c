"""`llm_extraction`: a file of prose, read by a model, on request only, for at most so many USD.

A model is asked piece by piece before the file is followed, so that no lock is held for as long as that takes; what it
answered is in the books. The file is then read as any other: all of it becomes visible together, or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from hashlib import sha256
from uuid import UUID

from libs.contracts.queries.qa_ingest import ExtractionEstimate
from libs.contracts.touchpoints import ModelSettings
from libs.llm import (
    Declined,
    ModelError,
    ModelPool,
    ModelReply,
    ModelRequest,
    OverBudget,
    PriceUnknownYet,
    UnknownPrice,
)
from libs.llm.tiers import ANALYSIS, model_named, tier
from libs.service_kit import logging
from libs.service_kit.db import Database
from services.qa_ingest.account import ExtractionAccount, OverCap
from services.qa_ingest.domain import prose
from services.qa_ingest.domain.blocks import Problem
from services.qa_ingest.domain.envelope import Extracted
from services.qa_ingest.domain.prose import Answered, Piece, Unanswered
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.extractors.llm_extraction import prose_of
from services.qa_ingest.store import calls

log = logging.get(__name__)
PRICE_WAIT_S = 1.0
PRICE_WAITS = 600
"""So often is waited for the price of other calls before a run gives up."""
PAID_BEFORE = "bring the file again: what has been answered is in the books, and is not paid for twice"


class Prose:
    """Readings of prose by the model that is configured."""

    def __init__(self, db: Database, pool: ModelPool, named: str = "") -> None:
        """`named` is `provider/name`; without it the tier `analysis` reads, or the offline model, by rule."""
        self._db = db
        self._pool = pool
        self._named = named

    async def estimate(self, workspace_id: UUID, file: File) -> ExtractionEstimate:
        """What reading a file takes at most. Raises `FileRejected`, `ModelError`."""
        settings = self._settings()
        pieces = prose.cut(prose_of(file))
        requests = [request for piece in pieces if (request := request_of(piece)) is not None]
        orders = {
            order.request_sha256: order for order in (self._pool.order(settings, request) for request in requests)
        }
        async with self._db.connection(workspaces=[workspace_id]) as conn:
            known = await calls.replied(conn, workspace_id, list(orders))
        todo = [order for key, order in orders.items() if key not in known]
        return ExtractionEstimate(
            model=self._pool.key(settings),
            characters=sum(len(piece.text) for piece in pieces),
            calls=len(todo),
            answered_before=len(orders) - len(todo),
            most_usd=sum((order.most_usd for order in todo), Decimal()),
        )

    def reading(self, workspace_id: UUID, run_id: UUID, max_usd: Decimal) -> Reading:
        """A reading of one file, which may cost so much. Raises `ModelError`."""
        settings = self._settings()
        account = ExtractionAccount(self._db, workspace_id, run_id, max_usd)
        return Reading(self._pool, settings, account, f"{prose.VERSION}+{self._pool.key(settings)}"[:500])

    def _settings(self) -> ModelSettings:
        if self._named:
            return model_named(self._named, "BURNISH_QA_MODEL")
        return tier(ANALYSIS) or ModelSettings()


@dataclass
class Reading:
    """One file, read once: `ask`, and then `extract` what came of it. See `Reader`."""

    pool: ModelPool
    settings: ModelSettings
    account: ExtractionAccount
    version: str
    _asked_of: str = ""
    _answers: list[Answered | Unanswered] = field(default_factory=list)
    _failure: FileRejected | None = None

    async def ask(self, file: File) -> None:
        """Ask the model about every piece of the file. What goes wrong is raised by `extract`."""
        self._asked_of, self._answers, self._failure = _sha(file), [], None
        try:
            for piece in prose.cut(prose_of(file)):
                self._answers.append(await self._answer(piece))
        except FileRejected as refused:
            self._failure = refused
        except ModelError as error:
            self._failure = _ended(error)

    async def extract(self, file: File) -> Extracted:
        """Every pair that holds. Raises `FileRejected`."""
        if self._failure is not None:
            raise self._failure
        if self._asked_of != _sha(file):
            raise FileRejected("changed_meanwhile", [Problem(1, "another version was brought while this one was read")])
        text = prose_of(file)
        return await asyncio.to_thread(self._extracted, text, self._answers)

    def _extracted(self, text: str, answers: Sequence[Answered | Unanswered]) -> Extracted:
        return prose.extracted(text, prose.cut(text), answers, self.pool.key(self.settings), self.version)

    async def _answer(self, piece: Piece) -> Answered | Unanswered:
        request = request_of(piece)
        if request is None:
            return Answered(pairs=())
        try:
            reply = await self._complete(request)
        except ModelError as error:
            if error.retryable or not (isinstance(error, Declined) or error.usage.usd):
                raise
            # Billed, and no use in asking again: it is this piece, as when the model declines it.
            return Unanswered(error.reason)
        return prose.answer_of(reply.data)

    async def _complete(self, request: ModelRequest) -> ModelReply:
        for _ in range(PRICE_WAITS):
            try:
                return await self.pool.complete(self.settings, request, self.account)
            except PriceUnknownYet:
                await asyncio.sleep(PRICE_WAIT_S)
        raise PriceUnknownYet


def request_of(piece: Piece) -> ModelRequest | None:
    """What a model is asked about a piece; None for one without a word."""
    if not prose.has_words(piece):
        return None
    return ModelRequest(
        task="extract",
        system=prose.SYSTEM,
        input=piece.text,
        output_schema=prose.SCHEMA,
        max_output_tokens=prose.MAX_OUTPUT_TOKENS,
    )


def _ended(error: ModelError) -> FileRejected:
    """Why a reading ended before its end. Nothing of it is served."""
    code = "model_failed"
    if isinstance(error, OverCap):
        code = "over_cap"
    elif isinstance(error, OverBudget):
        code = "over_budget"
    elif isinstance(error, UnknownPrice):
        code = "unknown_price"
    elif error.retryable:
        code = "model_away"
    log.warning("qa.prose.ended", code=code)
    return FileRejected(code, [Problem(1, error.reason), Problem(1, PAID_BEFORE)])


def _sha(file: File) -> str:
    return sha256(file.content).hexdigest()
