"""Wiring of the proposal service."""

from __future__ import annotations

from functools import partial

from libs import touchpoints
from libs.contracts.events.ab_runner import AbExecutedV1
from libs.contracts.events.pattern_detector import PatternDetectedV1
from libs.contracts.events.proposal import ProposalRequestedV1
from libs.contracts.events.registry import TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1
from libs.contracts.queries.proposal import (
    ApproveProposal,
    GetProposal,
    GetProposalSpending,
    ListProposals,
    RejectProposal,
    WaiveProposal,
)
from libs.llm import ModelPool, OpenModel, open_model
from libs.service_kit import requests
from libs.service_kit.service import Service
from services.proposal import answers, handlers
from services.proposal.generation import Generator
from services.proposal.settings import Settings

GAUGES_EVERY_S = 15.0
FORGET_EVERY_S = 3600.0


def build(settings: Settings, opener: OpenModel = open_model) -> Service:
    """The service, ready to `run()`. `opener` gives models another origin than their providers."""
    service = Service("proposal", settings)
    db, asker = service.db, service.asker
    pool = ModelPool(settings.budget, timeout_s=settings.proposal_call_timeout_s, opener=opener)
    service.on_stop(pool.close)
    generator = Generator(db, asker, pool, settings.proposal_model)
    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.consume_each(PatternDetectedV1, handlers.on_pattern_detected, db=db, asker=asker, generator=generator)
    service.consume_each(ProposalRequestedV1, handlers.on_proposal_requested, db=db, asker=asker, generator=generator)
    service.consume_batch(AbExecutedV1, handlers.on_ab_executed, db=db)
    service.consume_batch(VersionActivatedV1, handlers.on_versions_activated, db=db, asker=asker)
    service.consume_batch(VersionRolledBackV1, handlers.on_versions_rolled_back, db=db, asker=asker)
    service.answer(ListProposals, answers.answer_list, db=db)
    service.answer(GetProposal, answers.answer_get, db=db)
    service.answer(ApproveProposal, answers.answer_approve, db=db, asker=asker)
    service.answer(WaiveProposal, answers.answer_waive, db=db)
    service.answer(RejectProposal, answers.answer_reject, db=db)
    service.answer(GetProposalSpending, answers.answer_spending, db=db, budget=settings.budget)
    service.every(GAUGES_EVERY_S, "proposal-gauges", partial(handlers.gauges, db, settings.budget))
    service.every(FORGET_EVERY_S, "requests", partial(requests.forget_old, db))
    return service
