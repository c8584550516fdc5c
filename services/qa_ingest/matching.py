"""Questions matched with pairs, many at once, and forms filled with what was found."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from libs.contracts.library import SearchHit
from libs.contracts.queries.qa_forms import (
    MAX_FORM_BYTES,
    PART_BYTES,
    FilledForm,
    FormOutcome,
    FormPart,
    FormPartTaken,
    GetFormPart,
    MatchedQuestion,
    MatchForm,
    MatchQuestions,
    MatchResults,
    PutFormPart,
)
from libs.contracts.queries.qa_ingest import LibraryFilters
from libs.embeddings import Embedder
from libs.service_kit.connection import see_only
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest import metrics, sandbox, searching
from services.qa_ingest.answers import filters_of, hit_of
from services.qa_ingest.domain.tuning import Tuning, Tunings
from services.qa_ingest.extractors.base import FileRejected
from services.qa_ingest.forms import CONTENT_TYPES
from services.qa_ingest.forms.base import Form, Outcome, Slot
from services.qa_ingest.searching import Query
from services.qa_ingest.settings import fitted
from services.qa_ingest.store import forms
from services.qa_ingest.store.search import Filters

AT_ONCE = 3
"""Connections for one request: the others are for searches meanwhile."""
MAX_HELD_BYTES = 4 * MAX_FORM_BYTES
"""What one caller may have kept at a time."""
STRENGTHS = ("weak", "fair", "strong", "exact")
SHOWN_OPTIONS = 50
SAID: Mapping[FormOutcome, str] = {
    "filled": "",
    "no_match": "no pair answers it",
    "too_weak": "the best pair is not close enough",
    "left_alone": "",
    "no_place": "",
    "too_long": "the answer is longer than the place takes",
    "not_an_option": "the answer is none of the options",
}


@dataclass(frozen=True, slots=True)
class Best:
    """The best row for a question, with its whole answer."""

    hit: SearchHit
    answer: str


async def answer_match_questions(
    query: MatchQuestions, db: Database, embedder: Embedder, tunings: Tunings | None = None
) -> MatchResults:
    """The best pair for each question of a list."""
    best = await _best(query, query.questions, db, embedder, tunings)
    matched = [
        MatchedQuestion(question=question, match=found.hit if found else None)
        for question, found in zip(query.questions, best, strict=True)
    ]
    metrics.FORMS.labels("list").inc()
    return MatchResults(format="list", questions=tuple(matched))


async def answer_put_form_part(query: PutFormPart, db: Database) -> FormPartTaken:
    """Keep a part of a form until it is matched."""
    key = _key(query.workspace_ids, query.form_id, query.asked_by)
    content = _decoded(query.content)
    async with db.transaction() as tx:
        await see_only(tx.conn, query.workspace_ids)
        if not await forms.enter(tx.conn, key):
            raise _no_form(query.form_id)
        if await forms.held_bytes(tx.conn, query.asked_by) + len(content) > MAX_HELD_BYTES:
            told = f"at most {MAX_HELD_BYTES // 1024**2} MiB of forms are kept for one caller"
            raise Refused("too_many_forms", f"{told}; filled ones expire within a quarter of an hour", status=429)
        await forms.put(tx.conn, key, "sent", query.ordinal, content)
        return FormPartTaken(parts=await forms.count_sent(tx.conn, query.form_id))


async def answer_match_form(
    query: MatchForm,
    db: Database,
    embedder: Embedder,
    children: asyncio.Semaphore,
    tunings: Tunings | None = None,
) -> MatchResults:
    """The best pair for each question of a form, and the form filled. What was sent is gone, whatever comes of it.

    `children` bounds how many forms are read at a time.
    """
    key = _key(query.workspace_ids, query.form_id, query.asked_by)
    content = await _taken(query, key, db)
    kept = False
    try:
        form = await _read(content, children)
        best = await _best(query, [slot.question for slot in form.slots], db, embedder, tunings)
        chosen = _chosen(query, form, best)
        filled, outcomes = await _fill(form, content, chosen, children)
        told = [
            _told(query, slot, found, outcomes.get(number))
            for number, (slot, found) in enumerate(zip(form.slots, best, strict=True))
        ]
        used = {number for number, outcome in outcomes.items() if outcome == "filled"}
        made = await _keep(query, key, form, filled, [best[number] for number in sorted(used)], db) if used else None
        kept = made is not None
    finally:
        if not kept:
            await _drop(key, db)
    metrics.FORMS.labels(form.kind).inc()
    return MatchResults.model_validate(
        {"format": form.kind, "questions": told, "filled": len(used), "form": made, "notices": form.notices}
    )


async def answer_get_form_part(query: GetFormPart, db: Database) -> FormPart:
    """A part of a filled form; 404 where it is gone, or somebody else's."""
    async with db.connection(workspaces=query.workspace_ids) as conn:
        row = await forms.part(conn, query.form_id, query.ordinal, query.asked_by)
    if row is None:
        raise _no_form(query.form_id)
    return FormPart(
        content=base64.b64encode(row["content"]).decode(),
        parts=row["parts"],
        form=FilledForm(
            form_id=query.form_id,
            content_type=row["content_type"],
            bytes=row["bytes"],
            sha256=row["sha256"],
            expires_at=row["expires_at"],
        ),
    )


async def forget_expired(db: Database) -> None:
    """Remove forms that nobody fetched in time."""
    async with db.transaction() as tx:
        await forms.forget_expired(tx.conn)


# --- matching ----------------------------------------------------------------------------------------------------


async def _best(
    where: LibraryFilters, questions: Sequence[str], db: Database, embedder: Embedder, tunings: Tunings | None
) -> list[Best | None]:
    """The best row for each question. Equal questions are looked up once."""
    filters, tuning = filters_of(where), (tunings or fitted()).of(embedder.model)
    different = list(dict.fromkeys(questions))
    queries = await searching.understood_all(different, embedder)
    found: dict[str, Best | None] = {}
    shares = [(different[n::AT_ONCE], queries[n::AT_ONCE]) for n in range(AT_ONCE)]
    looks = (_look(where, filters, tuning, texts, asked, found, db) for texts, asked in shares if texts)
    await asyncio.gather(*looks)
    return [found[question] for question in questions]


async def _look(
    where: LibraryFilters,
    filters: Filters,
    tuning: Tuning,
    texts: Sequence[str],
    queries: Sequence[Query],
    into: dict[str, Best | None],
    db: Database,
) -> None:
    at = where.as_of or datetime.now(UTC)
    async with db.connection(workspaces=where.workspace_ids) as conn:
        for text, query in zip(texts, queries, strict=True):
            found = await searching.look(conn, query, filters)
            top = found.fused(tuning)[:1]
            rows = await searching.shown(conn, found, top) if top else {}
            row = rows.get(top[0].key) if top else None
            into[text] = Best(hit_of(top[0], row, tuning, at), row["answer_standard"]) if row is not None else None


# --- forms -------------------------------------------------------------------------------------------------------


async def _taken(query: MatchForm, key: forms.Key, db: Database) -> bytes:
    """What was sent, which is gone from the database then."""
    async with db.transaction() as tx:
        await see_only(tx.conn, query.workspace_ids)
        parts = await forms.take(tx.conn, key)
    if parts is None:
        raise _no_form(query.form_id)
    content = b"".join(parts)
    if len(parts) != query.parts or hashlib.sha256(content).hexdigest() != query.sha256:
        await _drop(key, db)
        raise Refused("incomplete", "the form did not come whole; send it again", status=409)
    if len(content) > MAX_FORM_BYTES:
        await _drop(key, db)
        raise Refused("too_large", f"a form has at most {MAX_FORM_BYTES:,} bytes", status=413)
    return content


async def _read(content: bytes, children: asyncio.Semaphore) -> Form:
    try:
        async with children:
            form = await sandbox.read_form(content)
    except FileRejected as error:
        raise _rejected(error) from error
    if not form.slots:
        raise Refused("no_questions", "no question was found in the form", status=422, notices=list(form.notices))
    return form


def _chosen(query: MatchForm, form: Form, best: Sequence[Best | None]) -> dict[int, str]:
    """The answers that are close enough, for the questions that wait for one."""
    if not query.fill:
        return {}
    return {
        number: found.answer
        for number, (slot, found) in enumerate(zip(form.slots, best, strict=True))
        if slot.state == "open" and found is not None and _is_enough(query, found)
    }


def _is_enough(query: MatchForm, found: Best) -> bool:
    return STRENGTHS.index(found.hit.match_strength) >= STRENGTHS.index(query.fill_from)


async def _fill(
    form: Form, content: bytes, chosen: Mapping[int, str], children: asyncio.Semaphore
) -> tuple[bytes, Mapping[int, Outcome]]:
    if not chosen:
        return content, {}
    try:
        async with children:
            return await sandbox.fill_form(form.kind, content, chosen)
    except FileRejected as error:
        raise _rejected(error) from error


async def _keep(
    query: MatchForm, key: forms.Key, form: Form, filled: bytes, used: Sequence[Best | None], db: Database
) -> FilledForm:
    parts = [filled[at : at + PART_BYTES] for at in range(0, len(filled), PART_BYTES)]
    sha256, content_type = hashlib.sha256(filled).hexdigest(), CONTENT_TYPES[form.kind]
    pairs = {each.hit.id: _confidence(each.hit) for each in used if each is not None and each.hit.kind == "curated"}
    async with db.transaction() as tx:
        await see_only(tx.conn, query.workspace_ids)
        expires_at = await forms.keep_filled(tx.conn, key, parts, content_type, sha256)
        await forms.cite(tx.conn, query.sha256, query.asked_by, pairs)
    return FilledForm(
        form_id=key.form_id, content_type=content_type, bytes=len(filled), sha256=sha256, expires_at=expires_at
    )


async def _drop(key: forms.Key, db: Database) -> None:
    async with db.transaction() as tx:
        await see_only(tx.conn, [key.workspace_id])
        await forms.drop(tx.conn, key.form_id)


def _confidence(hit: SearchHit) -> float:
    if hit.match_strength == "exact" or hit.similarity is None:
        return 1.0
    return min(max(hit.similarity, 0.0), 1.0)


def _told(query: MatchForm, slot: Slot, found: Best | None, written: Outcome | None) -> MatchedQuestion:
    outcome = _outcome(query, slot, found, written)
    return MatchedQuestion(
        question=slot.question,
        match=found.hit if found else None,
        place=slot.place,
        section=slot.section,
        options=tuple(option[:200] for option in slot.options[:SHOWN_OPTIONS]),
        outcome=outcome,
        why=slot.why or (SAID[outcome] if outcome else ""),
    )


def _outcome(query: MatchForm, slot: Slot, found: Best | None, written: Outcome | None) -> FormOutcome | None:
    if slot.state == "closed":
        return "left_alone"
    if slot.state == "no_place":
        return "no_place"
    if not query.fill or written is not None:
        return written
    return "no_match" if found is None else "too_weak"


# --- refusals ----------------------------------------------------------------------------------------------------


def _key(workspace_ids: Sequence[UUID], form_id: UUID, asked_by: str) -> forms.Key:
    if not workspace_ids:
        raise Refused("no_workspace", "a form is matched in a workspace, and the token names none", status=422)
    return forms.Key(form_id, workspace_ids[0], asked_by)


def _decoded(content: str) -> bytes:
    try:
        decoded = base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("invalid", "content: not base64", status=422) from error
    if len(decoded) > PART_BYTES:
        raise Refused("too_large", f"a part has at most {PART_BYTES:,} bytes", status=413)
    return decoded


def _rejected(error: FileRejected) -> Refused:
    return Refused(error.code, f"the form cannot be used: {error.problems[0].message}", status=422)


def _no_form(form_id: UUID) -> Refused:
    return Refused("not_found", f"there is no form {form_id}: it was never filled, or has expired", status=404)
