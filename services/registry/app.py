"""Wires the registry: what it hears, answers, and does now and then."""

from __future__ import annotations

from functools import partial

from libs.contracts.events.pattern_detector import ActivationJudgedV1
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.queries.registry import (
    ActivateVersion,
    ApplyTouchpoints,
    ConfirmIntents,
    GetLedgerHead,
    GetPrompt,
    GetStanding,
    GetTouchpoint,
    ListIntents,
    ListLedger,
    ListTouchpoints,
    ListVersions,
    PlanTouchpoints,
    RecordVersion,
    RollBack,
    VerifyLedger,
)
from libs.service_kit import requests
from libs.service_kit.service import Service
from services.registry import answers, handlers
from services.registry.drift import DriftCheck
from services.registry.ledger import Ledger
from services.registry.pending_merges import PendingMerges
from services.registry.registration import Registration
from services.registry.settings import Settings
from services.registry.stores import MergedStores
from services.registry.verification import load_key

FORGET_EVERY_S = 3600.0


def build(settings: Settings) -> Service:
    """The registry, ready to run."""
    service = Service("registry", settings)
    db = service.db
    ledger = Ledger(db)
    stores = MergedStores(settings.repository_roots)
    merges = PendingMerges(db, ledger, stores)
    registration = Registration(db, ledger, stores)

    service.consume_each(ProposalApprovedV1, handlers.on_proposal_approved, db=db, ledger=ledger, pending_merges=merges)
    service.consume_each(ActivationJudgedV1, handlers.on_activation_judged, db=db)

    service.answer(GetPrompt, answers.answer_prompt, db=db, ledger=ledger)
    service.answer(GetTouchpoint, answers.answer_touchpoint, db=db)
    service.answer(ListTouchpoints, answers.answer_touchpoints, db=db)
    service.answer(PlanTouchpoints, answers.answer_plan, registration=registration)
    service.answer(ApplyTouchpoints, answers.answer_apply, db=db, registration=registration)
    service.answer(GetStanding, answers.answer_standing, db=db)
    service.answer(ListVersions, answers.answer_versions, db=db)
    service.answer(RecordVersion, answers.answer_record, db=db)
    service.answer(ActivateVersion, answers.answer_activate, ledger=ledger)
    service.answer(RollBack, answers.answer_roll_back, db=db, ledger=ledger, pending_merges=merges)
    service.answer(ListIntents, answers.answer_intents, db=db)
    service.answer(ConfirmIntents, answers.answer_confirm, db=db, pending_merges=merges)
    service.answer(ListLedger, answers.answer_ledger, db=db)
    service.answer(VerifyLedger, answers.answer_verify, db=db)
    service.answer(GetLedgerHead, answers.answer_head, db=db, key=load_key(settings.ledger_key))

    service.every(settings.intents_every_s, "intents", merges.check)
    service.every(settings.drift_every_s, "drift", DriftCheck(db, ledger, merges, stores).check)
    service.every(FORGET_EVERY_S, "requests", partial(requests.forget_old, db))
    return service
