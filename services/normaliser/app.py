"""Wiring of the normaliser."""

from __future__ import annotations

from functools import partial

from libs import touchpoints
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.events.pattern_detector import SignalProcessedV1
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.normaliser import CountSignals, ListSignals
from libs.service_kit.service import Service
from services.normaliser import answers, handlers
from services.normaliser.settings import Settings


def build(settings: Settings) -> Service:
    """The service, ready to `run()`."""
    service = Service("normaliser", settings)
    service.consume_batch(SignalObservedV1, handlers.on_signals_observed, db=service.db)
    service.consume_batch(SignalProcessedV1, handlers.on_signals_processed, db=service.db)
    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=service.db)
    service.answer(ListSignals, answers.answer_list, db=service.db)
    service.answer(CountSignals, answers.answer_count, db=service.db)
    service.every(settings.rejudge_every_s, "rejudge", partial(handlers.rejudge, service.db))
    return service
