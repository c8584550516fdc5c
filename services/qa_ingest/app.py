"""Wiring of the Q&A library."""

from __future__ import annotations

import asyncio
from functools import partial

from libs import touchpoints
from libs.contracts.events.bucket_store import ObjectNotifiedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries import qa_curation as asked
from libs.contracts.queries.qa_forms import GetFormPart, MatchForm, MatchQuestions, PutFormPart
from libs.contracts.queries.qa_ingest import (
    EstimateExtraction,
    ExportPairs,
    FollowObject,
    GetIngestReport,
    GetPair,
    GiveFeedback,
    ImportLegacyPairs,
    ListDocuments,
    ListObjects,
    SearchChunks,
    SearchPairs,
    UploadDocument,
)
from libs.embeddings import embedder_from
from libs.llm import ModelPool, OpenModel, open_model
from libs.service_kit import requests
from libs.service_kit.service import Service
from services.qa_ingest import answers, curating, handlers, matching
from services.qa_ingest.buckets import kind_of, opened
from services.qa_ingest.curating import Governance
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.exports import answer_export
from services.qa_ingest.hints import Hints
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.legacy import answer_import
from services.qa_ingest.prose import Prose
from services.qa_ingest.reports import Reports
from services.qa_ingest.settings import Settings
from services.qa_ingest.uploads import Uploads

UPLOADS_EVERY_S = 30.0
OVERDUE_EVERY_S = 300.0
FORGET_REQUESTS_EVERY_S = 3600.0
REPORTS_EVERY_S = 2.0

FORGET_EVERY_S = 60.0
FORMS_AT_ONCE = 2
"""Each is a child process with its own limits."""


def build(settings: Settings, opener: OpenModel = open_model) -> Service:
    """The service, ready to `run()`. `opener` gives models another origin than their providers."""
    service = Service("qa_ingest", settings)
    db, embedder = service.db, embedder_from(settings.qa_embedder)
    bound = [Bound(opened(binding, settings.own_bus), binding) for binding in settings.bindings().buckets]
    tunings = settings.tunings()
    ingest = Ingest(db, bound, locks=settings.qa_object_locks)
    hints = Hints(ingest)
    pool = ModelPool(settings.model_budget, timeout_s=settings.qa_call_timeout_s, opener=opener)
    uploads = Uploads(db, ingest, Prose(db, pool, settings.qa_model))
    embedding = Embedding(db, embedder, uploads.workspaces, tunings.of(embedder.model))
    governance = Governance(db, settings.qa_review_grace_days, uploads.workspaces)
    reports = Reports(db)

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
    service.answer(EstimateExtraction, answers.answer_estimate, uploads=uploads)
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
    service.answer(asked.CreatePair, curating.answer_create, db=db)
    service.answer(asked.PromoteExtraction, curating.answer_promote, db=db)
    service.answer(asked.EditPair, curating.answer_edit, db=db)
    service.answer(asked.ProposeEdit, curating.answer_propose, db=db)
    service.answer(asked.MergePairs, curating.answer_merge, db=db)
    service.answer(asked.SplitPair, curating.answer_split, db=db)
    service.answer(asked.SupersedePair, curating.answer_supersede, db=db)
    service.answer(asked.ArchivePair, curating.answer_archive, db=db)
    service.answer(asked.RestorePair, curating.answer_restore, db=db)
    service.answer(asked.VerifyPair, curating.answer_verify, db=db)
    service.answer(asked.PublishPair, curating.answer_publish, db=db)
    service.answer(asked.ReviewPair, curating.answer_review, db=db)
    service.answer(asked.DeletePair, curating.answer_delete, db=db)
    service.answer(asked.UndoOperation, curating.answer_undo, db=db)
    service.answer(asked.ListSuggestions, curating.answer_suggestions, db=db)
    service.answer(asked.AcceptSuggestion, curating.answer_accept, db=db)
    service.answer(asked.DismissSuggestion, curating.answer_dismiss, db=db)
    service.answer(asked.ListReviews, curating.answer_reviews, db=db, grace_days=settings.qa_review_grace_days)
    service.answer(ImportLegacyPairs, answer_import, db=db, embedding=embedding)
    service.on_start(ingest.prepare)
    service.on_start(hints.start)
    service.on_stop(hints.stop)
    service.on_stop(uploads.stop)
    service.on_stop(pool.close)
    service.every(UPLOADS_EVERY_S, "uploads", uploads.follow_waiting)
    for each in bound:
        every_s = each.binding.look_every_s or kind_of(each.binding).look_every_s
        service.every(every_s, f"bucket {each.bucket.name}", partial(ingest.look_at, each))
        if each.binding.report:
            service.every(REPORTS_EVERY_S, f"reports {each.bucket.name}", partial(reports.write_missing, each))
        service.on_stop(each.bucket.close)
    service.every(FORGET_EVERY_S, "forms", partial(matching.forget_expired, db))
    service.every(settings.qa_embed_every_s, "embedding", embedding.embed_missing)
    service.every(OVERDUE_EVERY_S, "reviews", governance.mark_overdue)
    service.every(FORGET_REQUESTS_EVERY_S, "requests", partial(requests.forget_old, db))
    return service
