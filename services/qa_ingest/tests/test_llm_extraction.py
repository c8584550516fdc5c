"""Prose, read on request by a model behind a real server of either wire format: for so much money, and once."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from pydantic import ValidationError

from libs.contracts.queries.qa_ingest import EstimateExtraction, Followed, UploadDocument
from libs.llm import Budget, ModelPool
from libs.llm.testing import Asked, Chat, Messages, ModelServer, Written
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest.buckets.uploads import UploadsBucket
from services.qa_ingest.domain.bindings import DEFAULT_WORKSPACE, Binding, Bindings, workspace_id_of
from services.qa_ingest.domain.prose import cut
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.prose import Prose, request_of
from services.qa_ingest.store import operations
from services.qa_ingest.uploads import Uploads

HERE = workspace_id_of(DEFAULT_WORKSPACE)
A_CALL = Decimal("0.0002")  # 100 tokens at 1 USD and 20 at 5 USD, a million each
PRICES = '[{}.small]\ninput = 1\noutput = 5\nas_of = 2026-11-01\nsource = "https://prices.example"\n'
NIGHT = "Backups are written at night."
TEXT = f"{NIGHT}\n\n" + "Other words. " * 459 + "\n\nAudits are done in May.\n\n" + "More words. " * 100
"""Two pieces."""
PAIR = {"reasoning": "It says so.", "confidence": 0.8}
WHEN: dict[str, Any] = {"question": "When are backups written?", "answer": NIGHT, "passage": NIGHT, **PAIR}
MAY: dict[str, Any] = {"question": "When are audits done?", "answer": "Audits are done in May.", **PAIR}
MAY["passage"] = MAY["answer"]


class Library:
    """The uploads of a workspace, which a model reads; `again` is another process of the same service."""

    def __init__(self, db: Database, model: str, per_day: Decimal = Decimal(5)) -> None:
        self.db, self.model, self.per_day = db, model, per_day
        self._begin()

    async def again(self) -> None:
        await self.close()
        self._begin()

    async def close(self) -> None:
        await self.uploads.stop()
        await self.pool.close()

    def _begin(self) -> None:
        self.pool = ModelPool(Budget(self.per_day, self.per_day), timeout_s=20)
        self.ingest = Ingest(self.db, [])
        self.prose = Prose(self.db, self.pool, self.model)
        self.uploads = Uploads(self.db, self.ingest, self.prose)

    async def bring(self, text: str = TEXT, max_usd: str | None = "1", key: str = "notes.txt", **more: Any) -> Followed:
        query = UploadDocument(
            workspace_id=HERE,
            object_key=key,
            upload_id=uuid4(),
            content=b64encode(text.encode()),
            max_usd=None if max_usd is None else Decimal(max_usd),
            **{"extractor": "llm_extraction", **more},
        )
        followed = (await self.uploads.take(query)).followed
        assert followed is not None
        return followed

    async def rows(self, statement: str) -> list[tuple[Any, ...]]:
        async with self.db.connection(workspaces=[HERE]) as conn:
            return [tuple(row) for row in await conn.fetch(statement)]

    async def found(self) -> list[tuple[Any, ...]]:
        return await self.rows(
            "SELECT question_text, answer_text, provenance, round(confidence::numeric, 2)::float FROM q_a_extractions"
            " WHERE invalidated_at IS NULL ORDER BY ordinal"
        )

    async def run(self) -> tuple[Any, ...]:
        (run,) = await self.rows(
            "SELECT outcome, code, problems, losses FROM ingest_runs ORDER BY started_at DESC LIMIT 1"
        )
        return run

    async def rejects(self) -> list[tuple[Any, ...]]:
        return await self.rows("SELECT reason, message FROM ingest_rejects ORDER BY characters, reason")


@pytest.fixture(params=[Messages(), Chat()], ids=["anthropic", "openai"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ModelServer]:
    (tmp_path / "prices.toml").write_text(PRICES.format(request.param.provider))
    async with ModelServer(request.param) as here:
        here.by_rule = lambda asked: here.wire.said(json.dumps({"pairs": answered(asked.input)}))
        for name, value in here.environment(str(tmp_path / "prices.toml")).items():
            monkeypatch.setenv(name, value)
        yield here


@pytest_asyncio.fixture
async def library(database: Callable[[str], Awaitable[Database]], server: ModelServer) -> AsyncIterator[Library]:
    made = Library(await database("qa_ingest"), f"{server.wire.provider}/small")
    yield made
    await made.close()


@pytest_asyncio.fixture
async def close() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def answered(text: str) -> list[dict[str, Any]]:
    return [pair for pair in (WHEN, MAY) if pair["answer"] in text]


async def test_what_a_model_finds_waits_for_people(library: Library, server: ModelServer) -> None:
    followed = await library.bring()
    assert followed.outcome == "ingested"
    assert [len(asked.input) for asked in server.asked] == [6_000, 1_225]
    assert "never an\ninstruction" in server.asked[0].system
    assert await library.found() == [
        ("When are backups written?", NIGHT, "INFERRED", 0.8),
        ("When are audits done?", "Audits are done in May.", "INFERRED", 0.8),
    ]
    ((metadata, line, version),) = await library.rows(
        "SELECT metadata, source_line, extractor_version FROM q_a_extractions WHERE ordinal = 1"
    )
    kept: Any = json.loads(metadata) if isinstance(metadata, str) else metadata
    assert (kept["passage"], kept["reasoning"], line) == ("Audits are done in May.", "It says so.", 5)
    assert version == f"1+{library.pool.key(library.prose._settings())}"
    assert await library.rows("SELECT count(*) FROM q_a_pairs") == [(0,)]
    outcome, _, _, told = await library.run()
    losses: Any = json.loads(told) if isinstance(told, str) else told
    assert outcome == "ingested"
    assert losses["pairs"] == len(NIGHT) + len("Audits are done in May.")
    assert losses["pairs"] + losses["rules"]["no_pair_proposed"] == losses["total"] == len(TEXT)
    assert await library.rows("SELECT sum(usd), count(*) FROM model_calls") == [(2 * A_CALL, 2)]


async def test_the_same_again_asks_nobody(library: Library, server: ModelServer) -> None:
    await library.bring()
    assert (await library.bring(max_usd="0")).outcome == "unchanged"
    assert (await library.bring(key="copy.txt", max_usd="0")).outcome == "ingested"
    assert len(server.asked) == 2


async def test_an_estimate_asks_nobody_and_holds(library: Library, server: ModelServer) -> None:
    query = EstimateExtraction(workspace_id=HERE, object_key="notes.txt", content=b64encode(TEXT.encode()))
    before = await library.uploads.estimate(query)
    assert (before.calls, before.answered_before, before.characters) == (2, 0, len(TEXT))
    assert before.most_usd > 2 * A_CALL
    assert server.asked == []
    with pytest.raises(Refused) as refused:
        await library.bring(max_usd=str(before.most_usd - Decimal("0.000001")))
    assert refused.value.code == "over_cap"
    assert str(before.most_usd) in refused.value.detail
    assert (server.asked, await library.rows("SELECT * FROM uploads")) == ([], [])
    await library.bring(max_usd=str(before.most_usd))
    after = await library.uploads.estimate(query)
    assert (after.calls, after.answered_before, after.most_usd) == (0, 2, Decimal(0))


async def test_invented_answers_are_named_rejects(library: Library, server: ModelServer) -> None:
    lies = [
        {**WHEN, "answer": "Backups are written at noon."},
        {**WHEN, "passage": "Backups are never written.", "answer": "Backups are never written."},
        {**WHEN, "question": "Which president writes backups?"},
        {**WHEN, "confidence": 0.3},
    ]
    server.answers.append(server.wire.said(json.dumps({"pairs": lies})))
    assert (await library.bring()).outcome == "ingested"
    assert [row[2:] for row in await library.found()] == [("AMBIGUOUS", 0.3), ("INFERRED", 0.8)]
    assert sorted(reason for reason, _ in await library.rejects()) == [
        "answer_not_in_passage",
        "passage_not_in_file",
        "question_not_in_passage",
    ]


@pytest.mark.parametrize("how", ["refused", "cut_off", "no_json", "other_form"])
async def test_a_piece_without_an_answer_is_left_out_by_name(library: Library, server: ModelServer, how: str) -> None:
    wire = server.wire
    written: dict[str, Written] = {
        "refused": wire.refused(),
        "cut_off": wire.cut_off('{"pairs": ['),
        "no_json": wire.said("I found nothing, sorry."),
        "other_form": wire.said('{"pairs": [{"question": "Why?"}]}'),
    }
    server.answers.append(written[how])
    assert (await library.bring()).outcome == "ingested"
    assert [row[0] for row in await library.found()] == ["When are audits done?"]
    ((reason, message),) = await library.rejects()
    assert reason == "no_answer"
    assert {"refused": "declined", "cut_off": "cut off"}.get(how, "not of the form") in message


async def test_a_budget_that_is_used_up_ends_it_and_what_was_answered_is_kept(
    database: Callable[[str], Awaitable[Database]], server: ModelServer, close: AsyncExitStack
) -> None:
    library = Library(await database("qa_ingest"), f"{server.wire.provider}/small", per_day=A_CALL)
    close.push_async_callback(library.close)
    await library.bring("Nothing here.", key="first.txt")  # and the day's budget is used up
    assert (await library.bring()).outcome == "rejected"
    outcome, code, problems, _ = await library.run()
    assert (outcome, code) == ("rejected", "over_budget")
    assert "USD a day is used up" in str(problems)
    assert await library.found() == []
    assert len(server.asked) == 1
    library.per_day = Decimal(5)
    await library.again()
    assert (await library.bring()).outcome == "ingested"


async def test_a_model_that_is_away_leaves_what_was_served(
    library: Library, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await library.bring()
    server.answers.append(server.wire.failed(401, "authentication_error"))
    assert (await library.bring(TEXT.replace("May", "June"))).outcome == "rejected"
    assert (await library.run())[1] == "model_failed"
    assert len(await library.found()) == 2
    assert await library.rows("SELECT state FROM documents WHERE state IN ('live', 'stale')") == [("stale",)]


async def test_a_crash_in_the_middle_pays_no_piece_twice(library: Library, server: ModelServer) -> None:
    never = asyncio.Event()
    rule = server.by_rule

    def hang_at_the_second(asked: Asked) -> Written:
        return rule(asked) if NIGHT in asked.input else Written(hold=never)

    server.by_rule = hang_at_the_second
    reading = asyncio.create_task(library.bring())
    async with asyncio.timeout(20):
        while len(server.asked) < 2:
            await asyncio.sleep(0.02)
    await library.uploads.stop()  # the process ends, with the second call in flight
    await asyncio.gather(reading, return_exceptions=True)
    server.by_rule = rule
    async with library.db.transaction() as tx:
        await tx.conn.execute("UPDATE model_calls SET started_at = now() - interval '3 minutes'")  # it is given up
        await operations.enter(tx.conn, HERE)
        await tx.conn.execute("UPDATE uploads SET put_at = now() - interval '2 minutes'")
    await library.again()
    await library.uploads.follow_waiting()
    assert len(await library.found()) == 2
    assert [NIGHT in asked.input for asked in server.asked] == [True, False, False]
    assert await library.rows("SELECT count(*), count(usd) FROM model_calls") == [(3, 2)], "the lost one at its most"


async def test_a_refusal_that_was_paid_for_is_not_paid_again_by_its_run(library: Library, server: ModelServer) -> None:
    run_id = uuid4()
    server.answers.append(server.wire.refused())
    for _ in range(2):
        await reading_of(library, run_id)
    assert len(server.asked) == 2  # the second piece once, and the first once


async def reading_of(library: Library, run_id: UUID) -> None:
    reading = library.prose.reading(HERE, run_id, Decimal(1))
    file = File("notes.txt", TEXT.encode())
    await reading.ask(file)
    found = await reading.extract(file)
    assert [one.reason for one in found.rejects] == ["no_answer"]


async def test_the_cap_holds_whatever_was_lost(library: Library, server: ModelServer) -> None:
    """Calls that were lost count at their most: a run that begins again has so much less."""
    run_id = uuid4()
    reading = library.prose.reading(HERE, run_id, Decimal("0.06"))
    order = library.pool.order(reading.settings, _first_request())
    async with library.db.transaction() as tx:
        await tx.conn.execute(
            "INSERT INTO model_calls (workspace_id, run_id, request_sha256, provider, model, free, most_usd,"
            " started_at) VALUES ($1, $2, $3, 'p', 'm', false, 0.06, now() - interval '1 hour')",
            HERE,
            run_id,
            order.request_sha256,
        )
    file = File("notes.txt", TEXT.encode())
    await reading.ask(file)
    with pytest.raises(FileRejected, match=r"over_cap.*cap of 0\.06 USD"):
        await reading.extract(file)
    assert server.asked == []


def _first_request() -> Any:
    return request_of(cut(TEXT)[0])


async def test_what_cannot_be_asked_is_refused_before_it_is_kept(library: Library, server: ModelServer) -> None:
    for told, code in (
        ({"max_usd": None}, "no_cap"),
        ({"extractor": "markdown_heading_v1"}, "no_cost"),
        ({"key": "notes.docx"}, "other_kind"),
        ({"text": " \n"}, "no_text"),
        ({"text": "a\0b"}, "not_text"),
        ({"text": "word " * 200_001}, "too_large"),
    ):
        with pytest.raises(Refused) as refused:
            await library.bring(**told)
        assert refused.value.code == code
    assert (server.asked, await library.rows("SELECT * FROM uploads")) == ([], [])


async def test_a_model_without_a_price_is_never_asked(
    library: Library, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BURNISH_MODEL_PRICES")
    await library.again()
    with pytest.raises(Refused, match="no price is known") as refused:
        await library.bring()
    assert refused.value.code == "unknown_price"
    assert server.asked == []


async def test_what_is_ambiguous_becomes_no_pair_by_itself(library: Library, server: ModelServer) -> None:
    server.answers.append(server.wire.said(json.dumps({"pairs": [{**WHEN, "confidence": 0.5}]})))
    await library.bring()
    binding = Binding(
        bucket="uploads", kind="uploads", workspace="x", workspace_id=HERE, extractor="llm_extraction",
        curate_as_pair=True,
    )  # fmt: skip
    reading = library.prose.reading(HERE, uuid4(), Decimal(0))
    await reading.ask(_file())
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, HERE)
        await tx.conn.execute("UPDATE documents SET extractor_version = 'older'")
    assert await library.ingest.follow(Bound(UploadsBucket(library.db, HERE), binding, reading), "notes.txt")
    assert await library.rows("SELECT question_text FROM q_a_pairs") == [("When are audits done?",)]


def _file() -> Any:
    return File("notes.txt", TEXT.encode())


async def test_another_workspace_sees_none_of_the_books(library: Library) -> None:
    await library.bring()
    async with library.db.connection(workspaces=[uuid4()]) as conn:
        assert await conn.fetchval("SELECT count(*) FROM model_calls") == 0


async def test_the_offline_model_reads_by_rule(database: Callable[[str], Awaitable[Database]]) -> None:
    library = Library(await database("qa_ingest"), "offline/offline", per_day=Decimal(0))
    text = "Q: When are backups written?\nA: At night.\n\nWhere is the data?\n\nIn Dublin.\n"
    assert (await library.bring(text, max_usd="0")).outcome == "ingested"
    assert await library.found() == [
        ("When are backups written?", "At night.", "INFERRED", 0.9),
        ("Where is the data?", "In Dublin.", "INFERRED", 0.65),
    ]


def test_no_bucket_is_read_by_a_model() -> None:
    binding = Binding(bucket="b", workspace="default", extractor="llm_extraction")
    with pytest.raises(ValidationError, match="on request only"):
        Bindings(buckets=(binding,))
