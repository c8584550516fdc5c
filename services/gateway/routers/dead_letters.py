"""Dead letters of every service: list them, and hand one to its consumer again."""

from __future__ import annotations

import asyncio
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter
from fastapi import Query as Param
from pydantic import BaseModel

from libs.contracts import topology
from libs.contracts.queries.dead_letters import DeadLetter, ListDeadLetters, ReplayDeadLetter, Replayed
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller, require_all_workspaces
from services.gateway.api.asking import Gateway, GatewayDep
from services.gateway.api.body import JsonRoute
from services.gateway.api.errors import ServiceDown

router = APIRouter(route_class=JsonRoute, prefix="/dead-letters", tags=["dead letters"])
LIST_TIMEOUT_S = 3.0
REPLAY_TIMEOUT_S = 30.0


class DeadLetterList(BaseModel):
    """Dead letters, newest first, and the services that did not answer."""

    dead_letters: list[DeadLetter]
    unavailable: list[str]


@router.get("")
async def list_dead_letters(
    gateway: GatewayDep, include_replayed: bool = False, limit: Annotated[int, Param(ge=1, le=1_000)] = 100
) -> DeadLetterList:
    """What could not be handled, and why. A service that is down does not hide the others' letters."""
    names = [entry.name for entry in topology.SERVICES]
    query = ListDeadLetters(include_replayed=include_replayed, limit=limit)
    answers = await asyncio.gather(*(_of_service(gateway, name, query) for name in names))
    letters = [letter for answer in answers if answer is not None for letter in answer]
    letters.sort(key=lambda letter: letter.failed_at, reverse=True)
    down = [name for name, answer in zip(names, answers, strict=True) if answer is None]
    return DeadLetterList(dead_letters=letters[:limit], unavailable=down)


@router.post("/{service}/{dead_letter_id}/replay")
async def replay(service: str, dead_letter_id: UUID, caller: CurrentCaller, gateway: GatewayDep) -> Replayed:
    """Hand the message to its consumer again; the inbox keeps its effect single."""
    require_all_workspaces(caller)
    names = [entry.name for entry in topology.SERVICES]
    if service not in names:
        raise Refused("unknown_service", f"the services are: {', '.join(names)}", status=404)
    return await gateway.ask(
        ReplayDeadLetter(dead_letter_id=dead_letter_id),
        subject=topology.dead_letter_replay_subject(service),
        timeout_s=REPLAY_TIMEOUT_S,
    )


async def _of_service(gateway: Gateway, service: str, query: ListDeadLetters) -> tuple[DeadLetter, ...] | None:
    try:
        subject = topology.dead_letter_list_subject(service)
        return (await gateway.ask(query, subject=subject, timeout_s=LIST_TIMEOUT_S)).dead_letters
    except ServiceDown:
        return None
