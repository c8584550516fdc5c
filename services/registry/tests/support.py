"""What the registry's tests share: prompts, touchpoints, a git repository as a person sees it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from libs.contracts.events.proposal import ProposalApprovedV1
from libs.contracts.prompts import PromptPart, content_sha256
from libs.contracts.touchpoints import Touchpoint
from libs.contracts.versions import LivePrompt
from libs.service_kit.db import Database
from services.registry import prompts
from services.registry.adapters.feed_prompts import FeedPrompts
from services.registry.domain import Target
from services.registry.ledger import Ledger
from services.registry.pending_merges import PendingMerges
from services.registry.registration import Registration
from services.registry.stores import MergedStores

SKILL = "prompts/intent.md"
FIRST = "# Intents\n\n- refund: money back\n"
SECOND = "# Intents\n\n- refund: money back, please\n"
THIRD = "# Intents\n\n- refund: where is my money\n"

ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
}


class Repository:
    """Plain git, as a person uses it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True, env=ENVIRONMENT)

    def git(self, *args: str, stdin: bytes | None = None) -> str:
        command = ["git", "-C", str(self.root), *args]
        done = subprocess.run(command, check=True, env=ENVIRONMENT, input=stdin, capture_output=True)
        return done.stdout.decode().strip()

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, path: str, text: str, message: str = "Edit") -> str:
        self.write(path, text)
        self.git("add", "--", path)
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", "refs/heads").split()

    def apply(self, patch: str, message: str = "Roll back") -> str:
        self.git("apply", "--index", "-", stdin=patch.encode())
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")


@dataclass(frozen=True)
class Parts:
    """The registry's parts, with what tests do with them again and again."""

    db: Database
    ledger: Ledger
    stores: MergedStores
    pending_merges: PendingMerges
    registration: Registration

    async def register(self, *touchpoints: Touchpoint) -> None:
        await self.registration.apply(list(touchpoints), "ada")

    async def record(self, target: Target, text: str) -> str:
        async with self.db.transaction() as tx:
            parts = [PromptPart(path="prompt", text=text)]
            recorded = await FeedPrompts(None).record(tx.conn, target, parts, by="ada", origin="manual")
            return recorded.version_ref

    async def live(self, target: Target) -> LivePrompt:
        return await prompts.live_prompt(self.db, self.ledger, target)

    async def rows(self, statement: str, *args: Any) -> list[dict[str, Any]]:
        async with self.db.connection() as conn:
            return [dict(row) for row in await conn.fetch(statement, *args)]

    async def kinds(self) -> list[str]:
        return [row["kind"] for row in await self.rows("SELECT kind FROM ledger_entries ORDER BY seq")]


def in_table(touchpoint_id: str = "summary", scope: str = "global", text: str | None = FIRST) -> Touchpoint:
    """A touchpoint whose prompt is in the registry's own table."""
    storage = {"adapter": "feed_prompts", "initial_text": text}
    return Touchpoint.model_validate({"id": touchpoint_id, "scope": scope, "storage": storage})


def approved(
    touchpoint_id: str, live: LivePrompt, text: str, *, path: str = SKILL, workspace_id: UUID | None = None, **more: Any
) -> ProposalApprovedV1:
    """An approval of `text` for what is live."""
    parts = (PromptPart(path=path, text=text),)
    return ProposalApprovedV1(
        **{
            "proposal_id": uuid4(),
            "touchpoint_id": touchpoint_id,
            "workspace_id": workspace_id,
            "parts": parts,
            "content_sha256": content_sha256(parts),
            "base_version_ref": live.version_ref,
            "base_sha256": live.content_sha256,
            "approved_by": ("ada",),
            "title": "Ask for the refund politely",
            **more,
        }
    )
