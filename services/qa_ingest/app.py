"""Wiring of the Q&A library."""

from __future__ import annotations

import asyncio
from functools import partial

from libs import touchpoints
from libs.contracts.events.bucket_store import ObjectNotifiedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.qa_forms import GetFormPart, MatchForm, MatchQuestions, PutFormPart
from libs.contracts.queries.qa_ingest import (
    ExportPairs,
    FollowObject,
    GetIngestReport,
    GetPair,
    GiveFeedback,
    ListDocuments,
    ListObjects,
    SearchChunks,
    SearchPairs,
    UploadDocument,
)
from libs.embeddings import embedder_from
from libs.service_kit.service import Service
from services.qa_ingest import answers, handlers, matching
from services.qa_ingest.buckets import kind_of, opened
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.exports import answer_export
from services.qa_ingest.hints import Hints
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.settings import Settings
from services.qa_ingest.uploads import Uploads

UPLOADS_EVERY_S = 30.0

FORGET_EVERY_S = 60.0
FORMS_AT_ONCE = 2
"""Each is a child process with its own limits."""


def build(settings: Settings) -> Service:
    """The service, ready to `run()`."""
    service = Service("qa_ingest", settings)
    db, embedder = service.db, embedder_from(settings.qa_embedder)
    bound = [Bound(opened(binding, settings.own_bus), binding) for binding in settings.bindings().buckets]
    tunings = settings.tunings()
    ingest = Ingest(db, bound)
    hints = Hints(ingest)
    uploads = Uploads(db, ingest)
    embedding = Embedding(db, embedder, uploads.workspaces, tunings.of(embedder.model))

    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.consume_batch(ObjectNotifiedV1, handlers.on_objects_notified, hints=hints)
    service.answer(SearchPairs, answers.answer_search, db=db, embedder=embedder, tunings=tunings)
    service.answer(SearchChunks, answers.answer_chunks, db=db, embedder=embedder, tunings=tunings)
    service.answer(GiveFeedback, answers.answer_feedback, db=db)
    service.answer(GetPair, answers.answer_pair, db=db)
    service.answer(ListDocuments, answers.answer_documents, db=db)
    service.answer(GetIngestReport, answers.answer_report, db=db)
    service.answer(ExportPairs, answer_export, db=db)
    service.answer(UploadDocument, answers.answer_upload, uploads=uploads)
    service.answer(ListObjects, answers.answer_objects, uploads=uploads)
    service.answer(FollowObject, answers.answer_follow, uploads=uploads)
    service.answer(MatchQuestions, matching.answer_match_questions, db=db, embedder=embedder, tunings=tunings)
    service.answer(PutFormPart, matching.answer_put_form_part, db=db)
    service.answer(
        MatchForm,
        matching.answer_match_form,
        db=db,
        embedder=embedder,
        children=asyncio.Semaphore(FORMS_AT_ONCE),
        tunings=tunings,
    )
    service.answer(GetFormPart, matching.answer_get_form_part, db=db)
    service.on_start(ingest.prepare)
    service.on_start(hints.start)
    service.on_stop(hints.stop)
    service.on_stop(uploads.stop)
    service.every(UPLOADS_EVERY_S, "uploads", uploads.follow_waiting)
    for each in bound:
        every_s = each.binding.look_every_s or kind_of(each.binding).look_every_s
        service.every(every_s, f"bucket {each.bucket.name}", partial(ingest.look_at, each))
        service.on_stop(each.bucket.close)
    service.every(FORGET_EVERY_S, "forms", partial(matching.forget_expired, db))
    service.every(settings.qa_embed_every_s, "embedding", embedding.embed_missing)
    return service
