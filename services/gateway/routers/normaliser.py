"""Signals: pushed by applications, and read from the normaliser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request
from fastapi import Query as Param
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ValidationError

from libs.auth.claims import Caller
from libs.contracts.events.normaliser import SignalObservedV1
from libs.contracts.queries.normaliser import CountSignals, ListSignals, SignalCounts, SignalPage
from libs.contracts.vocabulary import Name, TouchpointId
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, require_workspace, workspaces_of
from services.gateway.api.asking import GatewayDep, OnceDep
from services.gateway.api.body import JsonRoute, parsed
from services.gateway.api.errors import MOST_ERRORS, field_errors, invalid, problem

router = APIRouter(route_class=JsonRoute, tags=["signals"])
MAX_BATCH = 1_000


class Accepted(BaseModel):
    """The signals are stored durably; each will be normalised once."""

    accepted: int
    signal_ids: list[UUID]


def _body_schema() -> dict[str, Any]:
    signal = SignalObservedV1.model_json_schema(ref_template="#/components/schemas/{model}")
    signal.pop("$defs", None)
    signal["required"] = ["touchpoint_id", "signal_type"]
    for name in ("evidence_ref", "payload"):
        signal["properties"][name] = {"type": "object"}
    signals = {"type": "array", "items": signal, "minItems": 1, "maxItems": MAX_BATCH}
    batch = {"type": "object", "properties": {"signals": signals}, "required": ["signals"]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": {"oneOf": [batch, signal]}}}}}


@router.post("/signals", status_code=202, response_model=Accepted, openapi_extra=_body_schema())
async def push(request: Request, caller: CurrentCaller, gateway: GatewayDep, once: OnceDep) -> Accepted | JSONResponse:
    """Take one signal, or up to 1,000 as `{"signals": [...]}`. The same Idempotency-Key gets the same answer.

    What a signal leaves out: `source_key` is made from caller, key and index; `evidence_ref` names that;
    `actor_id` is the caller, then of kind `machine`; `observed_at` is now. Fields that are not known are ignored.
    """
    raw = _signals(await request.body())
    if len(raw) > MAX_BATCH:
        return problem(413, "too_many", f"signals: {len(raw)} at once, at most {MAX_BATCH} are taken")
    signals, errors = _observed(raw, caller, once.key or uuid4().hex)
    if errors:
        return invalid(errors)
    for workspace_id in {signal.workspace_id for signal in signals}:
        require_workspace(caller, workspace_id)
    answer = Accepted(accepted=len(signals), signal_ids=[signal.signal_id for signal in signals])
    return await gateway.emit_once(once, answer, *signals)


@router.get("/signals")
async def list_signals(
    caller: CurrentCaller,
    gateway: GatewayDep,
    touchpoint_id: TouchpointId | None = None,
    signal_id: UUID | None = None,
    rejected: bool | None = None,
    unprocessed: bool | None = None,
    limit: Annotated[int, Param(ge=1, le=500)] = 50,
    cursor: Name | None = None,
) -> SignalPage:
    """Stored signals, newest first, of the workspaces in the token and of global touchpoints."""
    query = ListSignals(
        touchpoint_id=touchpoint_id,
        workspace_ids=workspaces_of(caller),
        rejected=rejected,
        unprocessed=unprocessed,
        signal_id=signal_id,
        limit=limit,
        cursor=cursor,
    )
    return await gateway.ask(query)


@router.get("/signals/counts")
async def count_signals(
    caller: CurrentCaller, gateway: GatewayDep, touchpoint_id: TouchpointId | None = None
) -> SignalCounts:
    """How many signals there are by touchpoint and state, of the workspaces in the token and of global touchpoints."""
    return await gateway.ask(CountSignals(touchpoint_id=touchpoint_id, workspace_ids=workspaces_of(caller)))


def _signals(body: bytes) -> list[Any]:
    try:
        document = parsed(body)
    except ValueError as error:
        raise Refused("not_json", "the body is not JSON", status=422) from error
    if isinstance(document, dict) and "signals" not in document:
        return [document]
    signals = document.get("signals") if isinstance(document, dict) else None
    if not isinstance(signals, list) or not signals:
        raise Refused("invalid", 'the body is one signal, or {"signals": [at least one]}', status=422)
    return signals


def _observed(raw: list[Any], caller: Caller, key: str) -> tuple[list[SignalObservedV1], list[dict[str, str]]]:
    signals: list[SignalObservedV1] = []
    errors: list[dict[str, str]] = []
    now = datetime.now(UTC)
    for index, fields in enumerate(raw):
        where = f"signals[{index}]"
        if not isinstance(fields, dict):
            errors.append({"loc": where, "message": "an object was expected"})
            continue
        try:
            signals.append(SignalObservedV1.model_validate(_completed(fields, caller, f"{key}:{index}", now)))
        except ValidationError as error:
            errors += field_errors(error.errors(include_input=False, include_url=False, include_context=False), where)
        if len(errors) >= MOST_ERRORS:
            break
    return signals, errors


def _completed(fields: dict[str, Any], caller: Caller, key: str, now: datetime) -> dict[str, Any]:
    # The caller is part of the key: two applications that both count from 1 must not hide each other's signals.
    source_key = fields.get("source_key") or f"push:{caller.subject}:{key}"
    actor = fields.get("actor_id")
    return {
        "evidence_ref": {"source": "push", "id": str(source_key)[-200:]},
        "payload": {},
        "observed_at": now,
        **{name: value for name, value in fields.items() if value is not None},
        "source_key": source_key,
        "actor_id": actor or caller.subject,
        "actor_kind": fields.get("actor_kind") or ("human" if actor else "machine"),
    }
