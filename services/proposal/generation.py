"""Writes a proposal for a commission: asks, calls the model, checks, and leaves gold out. No transaction is open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

from libs.contracts.evaluations import Case
from libs.contracts.patterns import EvidenceItem, PatternDetail
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.proposals import Hunk
from libs.contracts.queries.ab_runner import CheckLeaks, GetDevCases
from libs.contracts.touchpoints import ModelSettings
from libs.contracts.versions import LivePrompt
from libs.llm import ModelError, ModelPool, ModelRequest, OverBudget
from libs.llm.tiers import ANALYSIS, model_named, tier
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused, Unavailable
from libs.service_kit.queries import Asker
from libs.touchpoints import KnownTouchpoint
from services.proposal import domain, hunks, reply, sanitise
from services.proposal.account import ProposalAccount
from services.proposal.domain import Commission, Content, Draft
from services.proposal.metrics import LEAKS_DROPPED
from services.proposal.reply import ReplyError, Written

TEMPLATE = Path(__file__).parent / "skills" / "proposal-generator.md"
ATTEMPTS = 2
MAX_OUTPUT_TOKENS = 8_192
LEAKS_A_QUESTION = 500
LEAK_TEXT_CHARS = 20_000


class Generator:
    """The writer of proposals. It has no tools and no credentials: a prompt and evidence go in, hunks come out."""

    def __init__(self, db: Database, asker: Asker, pool: ModelPool, writer: str = "") -> None:
        """`writer` is `provider/name`; without it the tier `analysis` writes, or the touchpoint's own model."""
        self._writer = writer
        self._db = db
        self._asker = asker
        self._pool = pool
        self._template = TEMPLATE.read_text(encoding="utf-8")

    async def write(self, commission: Commission, touchpoint: KnownTouchpoint, live: LivePrompt) -> Draft:
        """A draft for the live text, with a reason instead of hunks where there is none.

        Called again for the same commission and text it gives the same draft and pays nothing. Raises Unavailable
        when somebody who must be asked does not answer.
        """
        refs = tuple(item.signal_id for item in commission.pattern.evidence)
        try:
            writer = self._chosen(touchpoint.model)
            model = self._pool.key(writer)
            self._pool.parameters(writer)
        except ModelError as error:
            reason = f"the model that writes proposals cannot be used: {error.reason}"
            return Draft(failure=reason, evidence_refs=refs)
        brief = await self._brief(commission.pattern, live)
        identity = domain.proposal_id(commission.pattern.pattern_id, commission.key, live.content_sha256)
        try:
            draft = await self._written(writer, brief, identity, live)
        except OverBudget as error:
            draft = Draft(failure=error.reason)
        except ModelError as error:
            if error.retryable:
                raise Unavailable(f"{model}: {error.reason}") from error
            draft = Draft(failure=f"the model cannot answer: {error.reason}")
        return replace(draft, model=model[:200], evidence_refs=refs)

    def _chosen(self, model: ModelSettings) -> ModelSettings:
        """The model that writes. Raises `ModelError` naming the setting that is wrong."""
        if self._writer:
            return model_named(self._writer, "BURNISH_PROPOSAL_MODEL")
        return tier(ANALYSIS) or model

    async def _brief(self, pattern: PatternDetail, live: LivePrompt) -> Brief:
        """Evidence that holds a gold case is left out: what the model has not seen it cannot quote."""
        quotes = [quote for item in pattern.evidence if (quote := _quoted(item))]
        texts = [quote[field] for quote in quotes for field in ("text", "reason")]
        leaked = await self._leaked(pattern.touchpoint_id, texts)
        kept = [quote for at, quote in enumerate(quotes) if not any(leaked[2 * at : 2 * at + 2])]
        return Brief.of(pattern, kept, live.parts, await self._dev_cases(pattern.touchpoint_id))

    async def _written(self, model: ModelSettings, brief: Brief, identity: UUID, live: LivePrompt) -> Draft:
        repair: dict[str, str] | None = None
        for attempt in range(1, ATTEMPTS + 1):
            account = ProposalAccount(self._db, live.touchpoint_id, identity, attempt)
            answer = await self._pool.complete(model, self._request(brief, repair), account)
            text = answer.text if answer.data is None else json.dumps(answer.data, ensure_ascii=False)
            try:
                return await self._checked(text, brief, live)
            except ReplyError as error:
                repair = {"previous": text[:40_000], "error": error.reason}
        assert repair is not None
        return Draft(failure=f"the model's reply cannot be used, after one repair: {repair['error']}"[:2_000])

    def _request(self, brief: Brief, repair: dict[str, str] | None) -> ModelRequest:
        document = brief.document if repair is None else {**brief.document, "repair": repair}
        return ModelRequest(
            task="propose",
            system=self._template,
            input=json.dumps(document, ensure_ascii=False),
            output_schema=Written.model_json_schema(),
            max_output_tokens=MAX_OUTPUT_TOKENS,
        )

    async def _checked(self, text: str, brief: Brief, live: LivePrompt) -> Draft:
        written = reply.read(text)
        if not written.hunks:
            return Draft(failure=f"no change is proposed: {written.rationale}"[:2_000])
        reply.check(written.as_hunks, live.parts, brief.evidence)
        kept, dropped = await self._without_gold(live.touchpoint_id, written.as_hunks)
        LEAKS_DROPPED.inc(dropped)
        if not kept:
            return Draft(failure="everything that it adds holds cases of the test split: nothing is left to propose")
        parts = reply.check(kept, live.parts, brief.evidence)
        content = Content(
            base_parts=live.parts,
            parts=parts,
            hunks=kept,
            rationale=written.rationale + _said_of(dropped),
            expected_impact=written.as_impact,
            risks=written.risks,
            review_guidance=written.review_guidance,
        )
        return _fitting(content, live)

    async def _dev_cases(self, touchpoint_id: str) -> tuple[Case, ...]:
        try:
            return (await self._asker.ask(GetDevCases(touchpoint_id=touchpoint_id))).cases
        except Refused:
            return ()  # no suite: the proposal will need a waiver, which its reviewers are told

    # --- gold -------------------------------------------------------------------------------------------------

    async def _without_gold(self, touchpoint_id: str, proposed: Sequence[Hunk]) -> tuple[tuple[Hunk, ...], int]:
        """The hunks without what holds a gold case, and how many added lines that took out.

        A leaking list item goes alone. Any other leaking line, or a leak across lines, takes its hunk along: a
        sentence with a hole is no proposal.
        """
        kept: list[Hunk] = []
        dropped = 0
        for hunk in proposed:
            lines = hunks.added(hunk)
            leaked = await self._leaked(touchpoint_id, [_probe(line) for line in lines])
            bad = [line for line, leaks in zip(lines, leaked, strict=True) if leaks]
            rest = hunks.without(hunk, {line.index for line in bad}) if bad else hunk
            if any(line.item is None for line in bad) or (rest and await self._leaks_across(touchpoint_id, rest)):
                rest = None
            dropped += len(bad) if rest else len(lines)
            kept += [rest] if rest else []
        return tuple(kept), dropped

    async def _leaks_across(self, touchpoint_id: str, hunk: Hunk) -> bool:
        """Whether the added lines of a hunk hold a case only when they are read as one text."""
        whole = " ".join(_probe(line) for line in hunks.added(hunk))
        return any(await self._leaked(touchpoint_id, _overlapping(whole)))

    async def _leaked(self, touchpoint_id: str, texts: Sequence[str]) -> list[bool]:
        leaked: list[bool] = []
        for at in range(0, len(texts), LEAKS_A_QUESTION):
            asked = tuple(texts[at : at + LEAKS_A_QUESTION])
            answer = await self._asker.ask(CheckLeaks(touchpoint_id=touchpoint_id, texts=asked))
            leaked += answer.leaked
        if len(leaked) != len(texts):
            raise ValueError(f"CheckLeaks answered {len(leaked)} of {len(texts)} texts")
        return leaked


def _fitting(content: Content, live: LivePrompt) -> Draft:
    if not domain.fits_the_bus(content):
        size, most = domain.content_bytes(content), domain.MOST_CONTENT_BYTES
        return Draft(failure=f"the proposed text and its hunks have {size} bytes, an event holds {most}")
    if content_sha256(content.parts) == live.content_sha256:
        return Draft(failure="the hunks together change nothing")
    return Draft(content=content)


def _probe(line: hunks.AddedLine) -> str:
    return (line.item if line.item is not None else line.text.strip())[:LEAK_TEXT_CHARS]


def _overlapping(text: str) -> list[str]:
    """Windows of what one question may hold, each half new."""
    step = LEAK_TEXT_CHARS // 2
    return [text[at : at + LEAK_TEXT_CHARS] for at in range(0, max(1, len(text) - step), step)]


def _said_of(dropped: int) -> str:
    if not dropped:
        return ""
    return f" {dropped} added line(s) were left out afterwards, since they hold cases of the test split."


# --- the brief --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Brief:
    """All that the model is told, as one JSON document, and the ids of the evidence in it."""

    document: dict[str, Any]
    evidence: tuple[UUID, ...]

    @classmethod
    def of(
        cls,
        pattern: PatternDetail,
        quotes: Sequence[dict[str, Any]],
        parts: Sequence[PromptPart],
        cases: Sequence[Case],
    ) -> Brief:
        """`quotes` are the pieces of evidence as `_quoted` makes them."""
        document = {
            "touchpoint_id": pattern.touchpoint_id,
            "prompt": [part.model_dump() for part in parts],
            "pattern": {
                "title": sanitise.clean(pattern.title, 300),
                "strategy": pattern.strategy,
                "expected": sanitise.clean_label(pattern.expected),
                "got": sanitise.clean_label(pattern.got),
                "evidence": list(quotes),
            },
            "dev_cases": [{"input": case.input, "expected": case.expected} for case in cases],
        }
        return cls(document, tuple(dict.fromkeys(UUID(quote["signal_id"]) for quote in quotes)))


def _quoted(item: EvidenceItem) -> dict[str, Any] | None:
    """A piece of evidence as the model sees it, sanitised here and nowhere else; None when nothing of it is left."""
    quote = {
        "signal_id": str(item.signal_id),
        "text": sanitise.clean(item.text),
        "reason": sanitise.clean(item.reason),
        "expected": sanitise.clean_label(item.expected),
        "got": sanitise.clean_label(item.got),
    }
    return quote if quote["text"] or quote["reason"] else None
