"""What ingest says of pairs and extractions: in the transaction that makes it true, and large files in few events."""

from __future__ import annotations

from datetime import UTC, datetime

from libs.contracts.events.qa_ingest import (
    QaExtractionCreatedV1,
    QaExtractionInvalidatedV1,
    QaPairCreatedV1,
    QaPairUpdatedV1,
)
from libs.service_kit.testing import outbox_events
from services.qa_ingest.domain import extraction_facts
from services.qa_ingest.tests.test_curation import A
from services.qa_ingest.tests.test_ingest import Library, block
from services.qa_ingest.tests.test_ingest import library as library

AT = datetime(2026, 1, 1, tzinfo=UTC)


async def test_new_changed_and_gone_files_are_told_of(library: Library) -> None:
    library.put("a.md", block("Why?", "Because.", id="a") + block("How?", "Thus.", id="b"))
    await library.ingest.look()
    (came,) = await outbox_events(library.db, QaExtractionCreatedV1)
    live = "SELECT id FROM q_a_extractions WHERE invalidated_at IS NULL ORDER BY ordinal"
    first = [row[0] for row in await library.rows(live)]
    assert list(came.data.extraction_ids) == first
    made = await outbox_events(library.db, QaPairCreatedV1)
    assert {(event.data.pair_id, event.data.operation_id) for event in made} == set(
        await library.rows("SELECT pair_id, operation_id FROM q_a_pair_history")
    )
    library.put("a.md", block("Why?", "Because of that.", id="a") + block("How?", "Thus.", id="b"))
    await library.ingest.look()
    (changed,) = await outbox_events(library.db, QaPairUpdatedV1)
    assert (changed.data.change_type, changed.data.updated_by, changed.data.version) == ("source_changed", "ingest", 2)
    (gone,) = await outbox_events(library.db, QaExtractionInvalidatedV1)
    assert (set(gone.data.extraction_ids), gone.data.reason) == (set(first), "source_changed")
    (library.folder / "a.md").unlink()
    await library.ingest.look()
    last = (await outbox_events(library.db, QaExtractionInvalidatedV1))[-1]
    assert last.data.reason == "source_deleted"


def test_a_large_file_is_told_of_in_parts() -> None:
    ids = [A for _ in range(2_500)]
    facts = extraction_facts.invalidated(A, A, "x", ids, AT)
    assert [len(fact.extraction_ids) for fact in facts] == [1_000, 1_000, 500]
    assert extraction_facts.came(A, A, "x", [], AT) == []
