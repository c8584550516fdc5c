"""Forms from their parts to a filled file, over a real library: strengths, rights, and nothing that stays behind."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import json
import os
import random
import re
import time
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import docx
import pypdf
import pytest

from libs.contracts.library import ScopeFilter
from libs.contracts.queries.qa_forms import (
    PART_BYTES,
    GetFormPart,
    MatchedQuestion,
    MatchForm,
    MatchQuestions,
    MatchResults,
    PutFormPart,
)
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest import matching
from services.qa_ingest.tests import pdfs
from services.qa_ingest.tests.office import package, table
from services.qa_ingest.tests.test_forms_document import form as word_form
from services.qa_ingest.tests.test_forms_workbook import book, filled, values
from services.qa_ingest.tests.test_ingest import block
from services.qa_ingest.tests.test_search import DESK, EMBEDDER, Searched

DATA = Path(os.environ.get("BURNISH_SHARED_DATA", "../shared/data")) / "faq"
ANN = "org|ann"
FORM = book(
    ["Question", "Answer"],
    ["How do I reset my password?", None],  # the pair's own words
    ["Which data can I download?", None],  # another phrasing of a pair
    ["How do i reset the password", "ask us"],  # answered already
    ["What is the airspeed of a laden swallow?", None],  # nobody knows
    ["Is the service up?", None],  # only for those who may see it
)


class Desk(Searched):
    """A library, and forms sent to it."""

    async def questions(self, *questions: str, **options: Any) -> MatchResults:
        query = MatchQuestions.model_validate({**self.where(options), "questions": questions})
        return await matching.answer_match_questions(query, self.db, EMBEDDER)

    async def send(self, content: bytes, *, by: str = ANN, part: int = PART_BYTES, **options: Any) -> MatchResults:
        form_id = uuid4()
        parts = [content[at : at + part] for at in range(0, len(content), part)]
        for ordinal, piece in enumerate(parts):
            await self.put_part(form_id, ordinal, piece, by)
        told = {"asked_by": by, "form_id": form_id, "parts": len(parts), "sha256": hashlib.sha256(content).hexdigest()}
        query = MatchForm.model_validate({**self.where(options), **told, **options})
        return await matching.answer_match_form(query, self.db, EMBEDDER, asyncio.Semaphore(2))

    async def put_part(self, form_id: UUID, ordinal: int, piece: bytes, by: str = ANN) -> int:
        content = base64.b64encode(piece).decode()
        put = PutFormPart(
            workspace_ids=(self.bound.workspace_id,), asked_by=by, form_id=form_id, ordinal=ordinal, content=content
        )
        return (await matching.answer_put_form_part(put, self.db)).parts

    async def fetch(self, form_id: UUID, *, by: str = ANN, workspace: UUID | None = None) -> bytes:
        pieces: list[bytes] = []
        while True:
            query = GetFormPart(
                workspace_ids=(workspace or self.bound.workspace_id,), asked_by=by, form_id=form_id, ordinal=len(pieces)
            )
            part = await matching.answer_get_form_part(query, self.db)
            pieces.append(base64.b64decode(part.content))
            if len(pieces) == part.parts:
                whole = b"".join(pieces)
                assert (part.form.bytes, part.form.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
                return whole

    def where(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"workspace_ids": (self.bound.workspace_id,), "publication_status": ("draft",), **options}

    async def left(self) -> tuple[int, int]:
        ((forms, parts),) = await self.rows("SELECT (SELECT count(*) FROM forms), (SELECT count(*) FROM form_parts)")
        return forms, parts


@pytest.fixture
async def desk(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Desk:
    made = Desk(await database("qa_ingest"), tmp_path)
    await made.ingest.prepare()
    await made.fill(*DESK)
    return made


def outcomes(found: MatchResults | Sequence[MatchedQuestion]) -> list[str | None]:
    return [one.outcome for one in (found.questions if isinstance(found, MatchResults) else found)]


async def test_a_list_of_questions(desk: Desk) -> None:
    found = await desk.questions("how do i reset my password", "Where is my parcel?", "zzz qqq", "Where is my parcel?")
    first, second, third, fourth = found.questions
    assert first.match is not None
    assert (first.match.question, first.match.match_strength) == ("How do I reset my password?", "exact")
    assert first.match.answer_preview == "Use the link on the sign-in page."
    assert second.match == fourth.match
    assert third.match is None or third.match.match_strength == "weak"
    assert (found.format, found.form, outcomes(found)) == ("list", None, [None] * 4)


async def test_the_best_match_is_the_one_that_search_finds(desk: Desk) -> None:
    for question in ("i forgot my password, what now", "my package has not arrived", "DEL-7", "up"):
        (found,) = (await desk.questions(question)).questions
        best = await desk.search(question)
        assert found.match == (best[0] if best else None)


async def test_a_workbook_is_filled_where_the_match_is_strong(desk: Desk) -> None:
    found = await desk.send(FORM)
    assert outcomes(found) == ["filled", "filled", "left_alone", "no_match", "too_weak"]
    assert (found.format, found.filled) == ("xlsx", 2)
    assert found.form is not None
    made = await desk.fetch(found.form.form_id)
    answers = [row[1] for row in values(made)]
    assert answers == ["Answer", "Use the link on the sign-in page.", "Every record.", "ask us", None, None]
    # nothing but the two cells differs
    again, _ = filled(FORM, {0: str(answers[1]), 1: str(answers[2])})
    assert again == made


async def test_rights_and_filters_are_those_of_search(desk: Desk) -> None:
    found = await desk.send(FORM, include_sensitive=True)
    assert outcomes(found) == ["filled", "filled", "left_alone", "no_match", "filled"]
    found = await desk.send(FORM, scope=ScopeFilter(include=("delivery",)))
    assert found.filled == 0
    assert found.form is None
    assert (await desk.send(FORM, publication_status=("published",))).filled == 0


async def test_fill_from_says_how_close_is_close_enough(desk: Desk) -> None:
    form = book(["Question", "Answer"], ["my password is lost, how is it reset?", None])
    (told,) = (await desk.questions("my password is lost, how is it reset?")).questions
    assert told.match is not None
    at = matching.STRENGTHS.index(told.match.match_strength)
    for number, strength in enumerate(matching.STRENGTHS):
        found = await desk.send(form, fill_from=strength)
        assert outcomes(found) == ["filled" if number <= at else "too_weak"]
    found = await desk.send(form, fill=False)
    assert (outcomes(found), found.form) == ([None], None)


async def test_word_and_pdf_come_back_in_their_format(desk: Desk) -> None:
    found = await desk.send(word_form(table(["Question", "Answer"], ["Where is my parcel?", ""])))
    assert (found.format, outcomes(found)) == ("docm", ["filled"])
    assert found.form is not None
    made = await desk.fetch(found.form.form_id)
    assert docx.Document(io.BytesIO(made)).tables[0].rows[1].cells[1].text == "Follow the tracking link."

    form = pdfs.form(("Where is my parcel?", pdfs.Text("parcel")), ("Is it up?", pdfs.Radio("up", ["y", "n", "x"])))
    found = await desk.send(form)
    assert (found.format, outcomes(found)[0], found.questions[1].options) == ("pdf", "filled", ("y", "n", "x"))
    assert found.form is not None
    made = await desk.fetch(found.form.form_id)
    assert made.startswith(form)
    fields = pypdf.PdfReader(io.BytesIO(made)).get_fields() or {}
    assert fields["parcel"]["/V"] == "Follow the tracking link."

    found = await desk.send(pdfs.flat(["1. Where is my parcel?"]))
    assert (found.format, outcomes(found), found.form) == ("pdf", ["no_place"], None)
    assert found.questions[0].match is not None


async def test_large_forms_come_and_go_in_parts(desk: Desk) -> None:
    noise = random.Random(7).randbytes(2 * PART_BYTES)
    large = io.BytesIO(FORM)
    with zipfile.ZipFile(large, "a") as archive:
        archive.writestr("xl/media/image1.png", noise)
    found = await desk.send(large.getvalue())
    assert (found.filled, found.form is not None and found.form.bytes > 2 * PART_BYTES) == (2, True)
    assert found.form is not None
    made = await desk.fetch(found.form.form_id)
    assert zipfile.ZipFile(io.BytesIO(made)).read("xl/media/image1.png") == noise
    assert (await desk.send(FORM, part=997)).filled == 2


async def test_a_form_is_its_senders(desk: Desk) -> None:
    found = await desk.send(FORM)
    assert found.form is not None
    for other in ({"by": "org|bob"}, {"workspace": UUID(int=9)}):
        with pytest.raises(Refused) as refused:
            await desk.fetch(found.form.form_id, **other)
        assert refused.value.status == 404
    with pytest.raises(Refused, match="no form"):
        await desk.put_part(found.form.form_id, 0, b"x", by="org|bob")


async def test_nothing_stays_behind(desk: Desk) -> None:
    assert (await desk.send(book(["Question", "Answer"], ["Who are you?", None]), fill_from="exact")).form is None
    with pytest.raises(Refused):
        await desk.send(b"no form")
    form_id = uuid4()
    await desk.put_part(form_id, 0, b"half")
    told = {"asked_by": ANN, "form_id": form_id, "parts": 2, "sha256": "0" * 64}
    query = MatchForm.model_validate({**desk.where({}), **told})
    with pytest.raises(Refused, match="did not come whole"):
        await matching.answer_match_form(query, desk.db, EMBEDDER, asyncio.Semaphore(1))
    assert await desk.left() == (0, 0)
    found = await desk.send(FORM)
    assert found.form is not None
    assert await desk.left() == (1, 1)  # the filled one alone
    await matching.forget_expired(desk.db)
    assert await desk.left() == (1, 1)
    async with desk.db.transaction() as tx:
        await tx.conn.execute("UPDATE forms SET expires_at = now() - interval '1 second'")
    with pytest.raises(Refused, match="expired"):
        await desk.fetch(found.form.form_id)
    await matching.forget_expired(desk.db)
    assert await desk.left() == (0, 0)


async def test_a_caller_cannot_fill_the_disk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MAX_HELD_BYTES", 2_000)
    form_id = uuid4()
    assert await desk.put_part(form_id, 0, b"x" * 1_500) == 1
    with pytest.raises(Refused) as refused:
        await desk.put_part(form_id, 1, b"x" * 1_500)
    assert (refused.value.code, refused.value.status) == ("too_many_forms", 429)
    await desk.put_part(uuid4(), 0, b"x" * 1_500, by="org|bob")


async def test_the_use_of_a_pair_is_recorded_once_a_form(desk: Desk) -> None:
    for _ in range(2):
        await desk.send(FORM)
    await desk.send(FORM, fill=False)
    statement = (
        "SELECT pair.question_text, cited.citing_id, cited.created_by, cited.confidence FROM citations AS cited"
        " JOIN q_a_pairs AS pair ON pair.id = cited.pair_id WHERE citation_kind = 'q_a_match' ORDER BY 1"
    )
    sha = hashlib.sha256(FORM).hexdigest()
    assert await desk.rows(statement) == [
        ("How do I reset my password?", sha, ANN, 1.0),
        ("What does the export hold?", sha, ANN, 1.0),
    ]


async def test_hostile_forms_are_refused_at_once(desk: Desk) -> None:
    await desk.send(FORM)  # the readers are loaded now
    rels = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"/>'
    bomb = package({"xl/workbook.xml": "<a/>", "xl/worksheets/sheet1.xml": b" " * 60_000_000})
    typed = package({"xl/workbook.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "xl/_rels/workbook.xml.rels": rels})
    for content, code in (
        (bytes.fromhex("d0cf11e0a1b11ae1") + b"x" * 100, "encrypted_or_legacy"),
        (bomb, "zip_bomb"),
        (typed, "document_type"),
        (package({"a.txt": "no form"}), "unknown_format"),
        (b"%PDF-1.7 nothing", "bad_pdf"),
        (book(["Name", "Price"], ["Pen", 2]), "no_questions"),
        (book(["Question", "Answer"], *[[f"Why {n}?", None] for n in range(1_001)]), "too_many_questions"),
    ):
        started = time.monotonic()
        with pytest.raises(Refused) as refused:
            await desk.send(content)
        assert (refused.value.code, refused.value.status) in ((code, 422), ("bad_workbook", 422))
        assert time.monotonic() - started < 5  # alone it is well below one second; the machine may be busy
    assert await desk.left() == (1, 1)


async def test_a_real_questionnaire_is_matched(desk: Desk) -> None:
    source = DATA / "13-vsaq" / "physical_and_datacenter.json"
    if not source.exists():
        pytest.skip(f"no {source}: set BURNISH_SHARED_DATA")
    text = re.sub(r"^\s*//.*$", "", source.read_text("utf-8"), flags=re.MULTILINE)
    every = [item.get("text", "") for item in items(json.loads(text)["questionnaire"])]
    asked = [one for one in dict.fromkeys(every) if one.endswith("?") and "<" not in one]
    assert len(asked) >= 15
    await desk.fill(*(block(json.dumps(one), f"Answer {n}.") for n, one in enumerate(asked)), key="vsaq.md")
    found = await desk.send(book(["Question", "Answer"], *[[one, None] for one in asked]))
    assert found.filled == len(asked)
    assert found.form is not None
    made = await desk.fetch(found.form.form_id)
    assert [row[1] for row in values(made)[1:]] == [f"Answer {n}." for n in range(len(asked))]


def items(told: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for one in told for each in (one, *items(one.get("items", ())))]


@pytest.mark.parametrize(
    ("path", "format", "count"),
    [
        ("04-asvs-xlsx/ASVS-excel-v3.0.1.xlsx", "xlsx", 182),  # a checklist: nowhere to answer
        ("03-asvs-redline/redline.docx", "docx", 179),
    ],
)
async def test_real_checklists_are_listed(desk: Desk, path: str, format: str, count: int) -> None:
    source = DATA / path
    if not source.exists():
        pytest.skip(f"no {source}: set BURNISH_SHARED_DATA")
    found = await desk.send(source.read_bytes())
    assert (found.format, len(found.questions), set(outcomes(found))) == (format, count, {"no_place"})
