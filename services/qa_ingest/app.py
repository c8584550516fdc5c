"""Wiring of the Q&A library."""

from __future__ import annotations

from libs import touchpoints
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.qa_ingest import GetIngestReport, GetPair, ListDocuments, SearchPairs
from libs.embeddings import embedder_from
from libs.service_kit.service import Service
from services.qa_ingest import answers
from services.qa_ingest.buckets.folder import FolderBucket
from services.qa_ingest.domain.bindings import Binding
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.ingest import Bound, Ingest
from services.qa_ingest.settings import Settings


def build(settings: Settings) -> Service:
    """The service, ready to `run()`."""
    service = Service("qa_ingest", settings)
    db, embedder = service.db, embedder_from(settings.qa_embedder)
    bound = [Bound(_bucket(binding), binding) for binding in settings.bindings().buckets]
    ingest = Ingest(db, bound)
    embedding = Embedding(db, embedder, lambda: sorted({each.workspace_id for each in bound}))

    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.answer(SearchPairs, answers.answer_search, db=db, embedder=embedder)
    service.answer(GetPair, answers.answer_pair, db=db)
    service.answer(ListDocuments, answers.answer_documents, db=db)
    service.answer(GetIngestReport, answers.answer_report, db=db)
    service.on_start(ingest.prepare)
    service.every(settings.qa_look_every_s, "buckets", ingest.look)
    service.every(settings.qa_embed_every_s, "embedding", embedding.embed_missing)
    return service


def _bucket(binding: Binding) -> FolderBucket:
    assert binding.folder is not None  # a binding of this kind has one
    return FolderBucket(binding.bucket, binding.folder)
