"""Wires the gateway: what it overhears, forgets now and then, and serves over HTTP."""

from __future__ import annotations

from libs.auth.keys import JwksKeys
from libs.auth.tokens import Verifier
from libs.contracts.events.registry import TouchpointRegisteredV1, VersionActivatedV1, VersionRolledBackV1
from libs.service_kit.service import Service
from services.gateway import handlers, store
from services.gateway.api.app import build_api
from services.gateway.api.asking import Gateway
from services.gateway.domain import LivePrompts
from services.gateway.live import Live
from services.gateway.settings import Settings

FORGET_EVERY_S = 3600.0
MIB = 1024 * 1024


def build(settings: Settings) -> Service:
    """The gateway, ready to run."""
    service = Service("gateway", settings)
    db = service.db
    keys = JwksKeys(settings.jwt_jwks)
    verifier = Verifier(
        keys,
        settings.jwt_issuer,
        settings.jwt_audience,
        settings.jwt_algorithms,
        organization=settings.jwt_organization,
        claim_names=settings.claim_names,
    )
    prompts = LivePrompts(settings.live_cache_mib * MIB)
    live = Live(prompts, service.asker, fresh_s=settings.live_fresh_s, stale_s=settings.live_stale_s)

    service.overhear(TouchpointRegisteredV1, handlers.on_touchpoint_registered, prompts=prompts)
    service.overhear(VersionActivatedV1, handlers.on_version_activated, prompts=prompts)
    service.overhear(VersionRolledBackV1, handlers.on_version_rolled_back, prompts=prompts)
    service.on_gap(live.forget)

    async def forget_keys() -> None:
        async with db.connection() as conn:
            await store.forget(conn, settings.idempotency_hours)

    service.every(FORGET_EVERY_S, "idempotency", forget_keys)
    service.check("jwks", keys.check)
    service.serve(build_api(Gateway(db, service.asker, verifier, live)))
    return service
