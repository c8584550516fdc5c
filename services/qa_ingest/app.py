"""Wiring of the Q&A library."""

from __future__ import annotations

from libs import touchpoints
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.service_kit.service import Service
from services.qa_ingest.settings import Settings


def build(settings: Settings) -> Service:
    """The service, ready to `run()`."""
    service = Service("qa_ingest", settings)
    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=service.db)
    return service
