"""Wiring of the agents service."""

from __future__ import annotations

from fastapi import FastAPI

from libs import touchpoints
from libs.contracts.events.registry import TouchpointRegisteredV1
from libs.contracts.queries.agents import (
    ApplyAgentCatalog,
    CreateAgent,
    GetAgent,
    GetAgentCatalog,
    GetAgentVersion,
    GetFlag,
    GetRefineSpending,
    ListAgents,
    ListAgentVersions,
    PreviewAgent,
    RefineAgent,
    RevertAgent,
    SetFlag,
    UpdateAgent,
)
from libs.llm import ModelPool, OpenModel, open_model
from libs.service_kit import requests
from libs.service_kit.service import Service
from services.agents import answers
from services.agents.engine import server
from services.agents.push import Engine
from services.agents.refining import Refiner
from services.agents.saving import Saving
from services.agents.settings import Settings

FORGET_EVERY_S = 3600.0


def build(settings: Settings, opener: OpenModel = open_model) -> Service:
    """The service, ready to `run()`. `opener` gives models another origin than their providers."""
    service = Service("agents", settings)
    db = service.db
    engine = _engine(service, settings)
    saving = Saving(db, engine)
    refiner = Refiner(ModelPool(settings.budget, timeout_s=settings.refine_timeout_s, opener=opener), settings.model)

    service.consume_batch(TouchpointRegisteredV1, touchpoints.on_registered, db=db)
    service.answer(ListAgents, answers.answer_list, db=db)
    service.answer(GetAgent, answers.answer_get, db=db)
    service.answer(CreateAgent, answers.answer_create, saving=saving)
    service.answer(UpdateAgent, answers.answer_update, saving=saving)
    service.answer(RevertAgent, answers.answer_revert, saving=saving)
    service.answer(ListAgentVersions, answers.answer_versions, db=db)
    service.answer(GetAgentVersion, answers.answer_version, db=db)
    service.answer(GetAgentCatalog, answers.answer_catalog, db=db)
    service.answer(ApplyAgentCatalog, answers.answer_apply_catalog, db=db)
    service.answer(GetFlag, answers.answer_flag, db=db)
    service.answer(SetFlag, answers.answer_set_flag, db=db)
    service.answer(RefineAgent, answers.answer_refine, db=db, refiner=refiner)
    service.answer(GetRefineSpending, answers.answer_spending, db=db, budget=settings.budget)
    service.answer(PreviewAgent, answers.answer_preview, db=db, engine=engine)

    async def sweep() -> None:
        await saving.sweep()

    async def forget() -> None:
        await requests.forget_old(db)

    service.every(settings.agents_sweep_every_s, "sweep", sweep)
    service.every(FORGET_EVERY_S, "requests", forget)
    service.on_stop(engine.close)
    return service


def _engine(service: Service, settings: Settings) -> Engine:
    """The engine that is named, or the small one, served by this process beside its health."""
    if settings.agents_engine_url:
        return Engine.at(settings.agents_engine_url, settings.agents_engine_token.get_secret_value())
    app: FastAPI = server.build(settings.agents_engine_folder)
    service.serve(app)
    return Engine.within(app)
