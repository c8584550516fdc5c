"""Questions matched with pairs of the Q&A library, and forms filled: the file comes and goes in parts."""

from __future__ import annotations

import base64
import hashlib
from typing import Annotated, Any
from uuid import UUID, uuid4

from fastapi import APIRouter, Request, Response
from fastapi import Query as Param
from pydantic import Field
from starlette.datastructures import UploadFile

from libs.auth.claims import Caller
from libs.contracts.library import MatchStrength, Provenance, PublicationStatus, ScopeFilter
from libs.contracts.queries.qa_forms import (
    MAX_FORM_BYTES,
    MAX_QUESTIONS,
    PART_BYTES,
    GetFormPart,
    MatchForm,
    MatchQuestions,
    MatchResults,
    PutFormPart,
)
from libs.contracts.queries.qa_ingest import Question
from libs.contracts.vocabulary import Instant, Name, ShortText
from libs.service_kit.errors import Refused
from services.gateway.api.access import CurrentCaller
from services.gateway.api.asking import Gateway, GatewayDep
from services.gateway.api.body import MAX_BODY_BYTES, JsonRoute, RequestBody
from services.gateway.routers.qa_ingest import libraries

router = APIRouter(route_class=JsonRoute, tags=["library"])
TIMEOUT_S = 80.0
Texts = Annotated[list[Name] | None, Param(max_length=50)]
ENDINGS = {
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.ms-excel.sheet.macroenabled.12": "xlsm",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-word.document.macroenabled.12": "docm",
    "application/pdf": "pdf",
    "application/octet-stream": "",
}
"""What a form may come as; what it is, its bytes say."""
_FILE = {"type": "string", "format": "binary"}
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["questions"],
                    "additionalProperties": False,
                    "properties": {
                        "questions": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MAX_QUESTIONS,
                            "items": {"type": "string", "minLength": 1, "maxLength": 2_000},
                        }
                    },
                }
            },
            "multipart/form-data": {
                "schema": {"type": "object", "required": ["file"], "properties": {"file": _FILE}},
            },
            **{kind: {"schema": _FILE} for kind in ENDINGS},
        },
    }
}


class QuestionList(RequestBody):
    """Questions without a form."""

    questions: Annotated[list[Question], Field(min_length=1, max_length=MAX_QUESTIONS)]


@router.post("/match", openapi_extra=BODY)
async def match(
    request: Request,
    caller: CurrentCaller,
    gateway: GatewayDep,
    workspace_id: UUID | None = None,
    include: Texts = None,
    exclude: Texts = None,
    expression: ShortText | None = None,
    primary_domain: ShortText | None = None,
    primary_subtopic: ShortText | None = None,
    provenance: Annotated[list[Provenance] | None, Param(max_length=3)] = None,
    status: Annotated[list[PublicationStatus] | None, Param(max_length=4)] = None,
    include_extractions: bool = False,
    as_of: Instant | None = None,
    fill: bool = True,
    fill_from: MatchStrength = "strong",
) -> MatchResults:
    """The best pair for each question, of a JSON list (`{"questions": […]}`) or of a form: xlsx, docx or PDF, as the
    body or as the one file of a multipart body.

    With `fill`, a form is filled where the match is `fill_from` or better; `form` in the answer names it, and
    `GET /api/qa/match/{form_id}/file` gives it for a quarter of an hour. Only answer cells and fields differ.
    """
    found = {
        "workspace_ids": libraries(caller, workspace_id),
        "scope": ScopeFilter(include=tuple(include or ()), exclude=tuple(exclude or ()), expression=expression),
        "primary_domain": primary_domain,
        "primary_subtopic": primary_subtopic,
        "provenance": tuple(provenance or ()),
        "publication_status": tuple(status or ["published"]),
        "include_extractions": include_extractions,
        "as_of": as_of,
    }
    if _media_type(request) in ("", "application/json"):
        questions = await _questions(request)
        return await gateway.ask(MatchQuestions.model_validate({**found, "questions": questions}), timeout_s=TIMEOUT_S)
    content = await _form(request)
    form_id = uuid4()
    parts = [content[at : at + PART_BYTES] for at in range(0, len(content), PART_BYTES)]
    query = MatchForm.model_validate(
        {
            **found,
            "asked_by": _who(caller),
            "form_id": form_id,
            "parts": len(parts),
            "sha256": hashlib.sha256(content).hexdigest(),
            "fill": fill,
            "fill_from": fill_from,
        }
    )
    await _put(gateway, query, parts)
    return await gateway.ask(query, timeout_s=TIMEOUT_S)


@router.get("/match/{form_id}/file", response_class=Response, responses={200: {"content": {"application/pdf": {}}}})
async def filled_form(
    form_id: UUID, caller: CurrentCaller, gateway: GatewayDep, workspace_id: UUID | None = None
) -> Response:
    """A filled form, in the format that it was sent in. Whoever had it filled may fetch it until it expires."""
    workspaces, who = libraries(caller, workspace_id), _who(caller)
    pieces: list[bytes] = []
    count, kind = 1, ""
    while len(pieces) < count:
        query = GetFormPart(workspace_ids=workspaces, asked_by=who, form_id=form_id, ordinal=len(pieces))
        part = await gateway.ask(query)
        count, kind = part.parts, part.form.content_type
        pieces.append(base64.b64decode(part.content))
    ending = ENDINGS.get(kind.lower(), "")
    headers = {
        "Content-Disposition": f'attachment; filename="filled.{ending or "bin"}"',
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return Response(b"".join(pieces), media_type=kind, headers=headers)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").split(";")[0].strip().lower()


def _who(caller: Caller) -> str:
    return f"{caller.organization}|{caller.subject}"


async def _questions(request: Request) -> list[str]:
    body = await request.body()
    if len(body) > MAX_BODY_BYTES:
        raise Refused("too_large", f"a list of questions is at most {MAX_BODY_BYTES:,} bytes", status=413)
    try:
        told = await request.json()
    except ValueError as error:
        raise Refused("invalid", "the body is not JSON", status=422) from error
    return QuestionList.model_validate({"questions": told} if isinstance(told, list) else told).questions


async def _form(request: Request) -> bytes:
    kind = _media_type(request)
    if kind == "multipart/form-data":
        content = await _file(request)
    elif kind in ENDINGS:
        content = await request.body()
    else:
        raise Refused(
            "unsupported_media_type",
            "a form is .xlsx, .docx or .pdf, as the body with its own content type or as a multipart file;"
            ' a list of questions is JSON: {"questions": […]}',
            status=415,
        )
    if not content:
        raise Refused("invalid", "the form is empty", status=422)
    if len(content) > MAX_FORM_BYTES:
        raise Refused("too_large", f"a form has at most {MAX_FORM_BYTES:,} bytes", status=413)
    return content


async def _file(request: Request) -> bytes:
    """The one file of a multipart body."""
    async with request.form(max_files=1, max_fields=0) as form:
        files = [value for value in form.values() if isinstance(value, UploadFile)]
        if len(files) != 1:
            raise Refused("invalid", "a multipart body has one part with a file, and nothing else", status=422)
        return await files[0].read(MAX_FORM_BYTES + 1)


async def _put(gateway: Gateway, query: MatchForm, parts: list[bytes]) -> None:
    for ordinal, part in enumerate(parts):
        await gateway.ask(
            PutFormPart(
                workspace_ids=query.workspace_ids,
                asked_by=query.asked_by,
                form_id=query.form_id,
                ordinal=ordinal,
                content=base64.b64encode(part).decode(),
            )
        )
