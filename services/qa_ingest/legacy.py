"""Takes the pairs of an older platform in: all that are sent, or none."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from uuid import UUID

from libs.contracts.library import LegacyPair
from libs.contracts.queries.qa_ingest import ImportLegacyPairs, LegacyImported
from libs.service_kit.connection import see_only
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.store import legacy, operations
from services.qa_ingest.store.operations import Operation


async def answer_import(query: ImportLegacyPairs, db: Database, embedding: Embedding) -> LegacyImported:
    """Make pairs of rows that are not here yet, with their ids, and give their questions vectors."""
    pairs = _in_order(query.pairs)
    workspaces = sorted({pair.workspace_id for pair in pairs})
    async with db.transaction() as tx:
        await see_only(tx.conn, workspaces)
        _require_workspaces(set(workspaces) - await legacy.workspaces(tx.conn), pairs)
        known = await legacy.known(tx.conn, [pair.id for pair in pairs])
        targets = {pair.superseded_by for pair in pairs if pair.superseded_by} - {pair.id for pair in pairs}
        missing = targets - await legacy.known(tx.conn, sorted(targets))
        if missing:
            raise _refused(
                "unknown_successor",
                [pair for pair in pairs if pair.superseded_by in missing],
                "superseded_by names a pair that is neither in the file nor in the workspace",
            )
        # Whose changes these were stands in the rows; the rest of the history's first line is said here.
        operation = Operation("", "initial_ingest", f"imported from {query.file} for {query.by}")
        await operations.say(tx.conn, operation)
        new = [pair for pair in pairs if pair.id not in known]
        written = await legacy.add(tx.conn, new, query.by)
        if len(written) < len(new):
            hidden = [pair for pair in new if pair.id not in written]
            raise _refused("in_another_workspace", hidden, "a pair with its id is in another workspace")
    for workspace_id in sorted({pair.workspace_id for pair in new}):
        await embedding.embed_workspace(workspace_id)
    return LegacyImported(imported=len(new), there_already=len(pairs) - len(new), operation_id=operation.operation_id)


def _in_order(pairs: Sequence[LegacyPair]) -> list[LegacyPair]:
    """Every pair behind the one that took its place. Raises `Refused` where they go in a circle."""
    by_id = {pair.id: pair for pair in pairs}
    before: dict[UUID, set[UUID]] = {
        pair.id: {pair.superseded_by} & by_id.keys() if pair.superseded_by else set() for pair in pairs
    }
    try:
        return [by_id[each] for each in TopologicalSorter(before).static_order()]
    except CycleError as error:
        circle = [by_id[each] for each in error.args[1][:-1]]
        raise _refused("supersession_circle", circle, "these pairs supersede each other in a circle") from error


def _require_workspaces(missing: set[UUID], pairs: Sequence[LegacyPair]) -> None:
    if missing:
        raise _refused(
            "unknown_workspace",
            [pair for pair in pairs if pair.workspace_id in missing],
            "its workspace is not known here: bind a bucket to it (`workspace_id`), or name another for all rows",
        )


def _refused(code: str, pairs: Sequence[LegacyPair], what: str) -> Refused:
    lines = sorted(pair.line for pair in pairs)
    told = ", ".join(map(str, lines[:20])) + (f" and {len(lines) - 20} more" if len(lines) > 20 else "")
    return Refused(code, f"line{'' if len(lines) == 1 else 's'} {told}: {what}", status=422)
