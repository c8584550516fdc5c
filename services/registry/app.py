"""Wires the registry: what it hears, answers, does now and then, and serves over HTTP."""

from __future__ import annotations

from libs.auth.keys import JwksKeys
from libs.auth.tokens import Verifier
from libs.contracts.events.pattern_detector import ActivationJudgedV1
from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.queries.registry import GetPrompt
from libs.service_kit.service import Service
from services.registry import handlers
from services.registry.api import build_api
from services.registry.api.gateway import Gateway
from services.registry.drift import DriftCheck
from services.registry.ledger import Ledger
from services.registry.pending_merges import PendingMerges
from services.registry.registration import Registration
from services.registry.settings import Settings
from services.registry.storage import Repositories
from services.registry.store import idempotency

FORGET_EVERY_S = 3600.0


def build(settings: Settings) -> Service:
    """The registry, ready to run."""
    service = Service("registry", settings)
    db = service.db
    ledger = Ledger(db)
    repositories = Repositories(settings.repository_roots)
    pending_merges = PendingMerges(db, ledger, repositories)
    keys = JwksKeys(settings.jwt_jwks)
    verifier = Verifier(
        keys,
        settings.jwt_issuer,
        settings.jwt_audience,
        settings.jwt_algorithms,
        organization=settings.jwt_organization,
    )
    registration = Registration(db, ledger, repositories)

    service.consume_each(
        ProposalApprovedV1, handlers.on_proposal_approved, db=db, ledger=ledger, pending_merges=pending_merges
    )
    service.consume_each(ActivationJudgedV1, handlers.on_activation_judged, db=db)
    service.answer(GetPrompt, handlers.answer_prompt, db=db, ledger=ledger)

    async def forget_keys() -> None:
        async with db.connection() as conn:
            await idempotency.forget(conn, settings.idempotency_hours)

    service.every(settings.intents_every_s, "intents", pending_merges.check)
    service.every(settings.drift_every_s, "drift", DriftCheck(db, ledger, pending_merges, repositories).check)
    service.every(FORGET_EVERY_S, "idempotency", forget_keys)
    service.check("jwks", keys.check)
    service.serve(build_api(Gateway(db, service.asker, verifier, ledger, pending_merges, registration)))
    return service
