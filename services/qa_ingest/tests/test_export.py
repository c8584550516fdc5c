"""Out of the library and into another one: the same pairs, column by column; where they came from nothing changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from libs.contracts.library import ExportedPair
from libs.contracts.queries.qa_ingest import ExportPairs
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest.domain.bundle import Entry
from services.qa_ingest.domain.bundle_writer import render
from services.qa_ingest.domain.conversion import entry_of_pair
from services.qa_ingest.exports import answer_export
from services.qa_ingest.store import operations
from services.qa_ingest.tests.test_bundle import entries
from services.qa_ingest.tests.test_ingest import Library, block

NEVER_THE_SAME = {
    *("id", "workspace_id", "source_document_id", "promoted_from_extraction_id", "created_at", "updated_at"),
    "archived_at",
}
NASTY = """\
# Our answers

Workspace ID:

---
question: "Is it: safe? # really 🙂"
id: A-1
alternate_phrasings: ["how safe", "\\tsafe\\n?"]
scope_tags: [y, no, on, "null", "1.0", 2024-01-01]
anti_scope_tags: ["~"]
primary_domain: Security
primary_subtopic: "Keys: theirs"
secondary_domain: "yes"
secondary_subtopic: "{}"
confidence: 0.1
provenance: INFERRED
publication_status: published
valid_from: 2024-01-31
valid_to: 2031-01-31T12:30:00.25+02:00
sources: [{file: "a: b.docx", table_index: 0, row_index: 3}, {file: c.md}]
verified_at: 2024-02-01
verified_by: "Kim # 2"
layer: core
next_review_date: 2030-01-01
review_cadence_days: 365
sensitive: true
our own: {a: [no, {b: "~"}], c: ~}
tags_of_ours: "x"
---
**Standard answer:**

    indented code first

\\---

question: this is text, as the rule above it is escaped

---

```yaml
---
question: no
---
```

**Advanced answer:**

\\**Standard answer:** is a marker
---
question: Why?
publication_status: archived
valid_from: 2024-01-01
---
Because.
---
question: Why?
valid_from: 2024-01-01
---
Another reason.
---
question: And a fence that is left open?
valid_from: 2024-01-01T00:00:00.000001Z
---
~~~~
x
"""


class Out:
    """Takes a library's pairs out."""

    def __init__(self, library: Library) -> None:
        self.library = library

    async def pairs(self, *, sensitive: bool = True, limit: int = 500) -> list[ExportedPair]:
        found: list[ExportedPair] = []
        after = None
        while True:
            query = ExportPairs(
                workspace_id=self.library.bound.workspace_id, after=after, include_sensitive=sensitive, limit=limit
            )
            page = await answer_export(query, self.library.db)
            assert len(page.pairs) <= limit
            found += page.pairs
            after = page.next
            if after is None:
                return found

    async def bundle(self) -> str:
        return render([entry_of_pair(pair) for pair in await self.pairs()], title="x")

    async def rows(self) -> list[dict[str, Any]]:
        """Every column of every pair, in the order of the export, less what can never be the same."""
        ids = [pair.pair_id for pair in await self.pairs()]
        async with self.library.db.connection(workspaces=[self.library.bound.workspace_id]) as conn:
            found = {row["id"]: dict(row) for row in await conn.fetch("SELECT * FROM q_a_pairs")}
        assert sorted(found) == sorted(ids)
        return [{key: found[each][key] for key in found[each] if key not in NEVER_THE_SAME} for each in ids]


@pytest.fixture
def names() -> Iterator[int]:
    return count()


@pytest.fixture
async def make(
    database: Callable[[str], Awaitable[Database]], tmp_path: Path, names: Iterator[int]
) -> Callable[..., Awaitable[Library]]:
    """A library of a workspace of its own, over a folder of its own."""
    db = await database("qa_ingest")

    async def made(**binding: Any) -> Library:
        name = f"w{next(names)}"
        (tmp_path / name).mkdir()
        library = Library(db, tmp_path / name, **{"workspace": name, "trusted": True, **binding})
        await library.ingest.prepare()
        return library

    return made


Make = Callable[..., Awaitable[Library]]


@pytest.mark.parametrize("trusted", [True, False])
async def test_what_is_exported_and_ingested_elsewhere_is_the_same(make: Make, trusted: bool) -> None:
    first, second = await make(trusted=trusted), await make(trusted=trusted)
    first.put("help/nasty.md", NASTY)
    await first.ingest.look()
    first.put("more.md", block("How?", "Thus.\r\n\r\n  Really.  ") + block("Who?", "x" * 50_000, id="w"))
    await first.ingest.look()
    assert sorted(await first.documents()) == [("help/nasty.md", "live"), ("more.md", "live")]
    exported = await Out(first).bundle()
    second.put("exported.md", exported)
    await second.ingest.look()
    assert await second.documents() == [("exported.md", "live")]
    rows = await Out(first).rows()
    assert len(rows) == 6
    assert rows[0]["publication_status"] == ("published" if trusted else "draft")
    assert await Out(second).rows() == rows
    assert await Out(second).bundle() == exported


async def test_a_second_ingest_into_the_same_workspace_changes_nothing(make: Make) -> None:
    library = await make()
    library.put("nasty.md", NASTY)
    await library.ingest.look()
    before = await library.rows("SELECT id, version, updated_at FROM q_a_pairs ORDER BY id")
    exported = await Out(library).bundle()
    library.put("again.md", exported)
    await library.ingest.look()
    assert await library.rows("SELECT id, version, updated_at FROM q_a_pairs ORDER BY id") == before
    assert await library.rows("SELECT kind FROM suggestions") == []
    assert await Out(library).bundle() == exported


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entry=entries())
async def test_any_pair_comes_back_as_it_was(make: Make, entry: Entry) -> None:
    first, second = await make(), await make()
    first.put("a.md", render([entry], title="x"))
    await first.ingest.look()
    second.put("b.md", await Out(first).bundle())
    await second.ingest.look()
    rows = await Out(first).rows()
    assert len(rows) == 1
    assert await Out(second).rows() == rows


async def test_pages_join_without_a_gap_and_in_the_order_of_the_files(make: Make) -> None:
    library = await make()
    for name in "ab":
        library.put(f"{name}.md", "".join(block(f"{name}{n}?", "x") for n in range(7)))
        await library.ingest.look()
    for limit in (1, 3, 14, 500):
        found = await Out(library).pairs(limit=limit)
        assert [pair.question for pair in found] == [f"{name}{n}?" for name in "ab" for n in range(7)]
        assert {pair.file for pair in found} == {"a.md", "b.md"}


async def test_a_page_ends_before_the_bus_is_full(make: Make) -> None:
    library = await make()
    library.put("a.md", "".join(block(f"{n}?", "ü" * 49_999) for n in range(30)))
    await library.ingest.look()
    page = await answer_export(ExportPairs(workspace_id=library.bound.workspace_id), library.db)
    assert 15 < len(page.pairs) < 30
    assert page.next is not None
    assert len(await Out(library).pairs()) == 30


async def test_sensitive_and_superseded_pairs_are_counted(make: Make) -> None:
    library = await make()
    library.put("a.md", block("A?", "x", sensitive="true") + block("B?", "x") + block("C?", "x"))
    await library.ingest.look()
    async with library.db.transaction() as tx:
        await operations.enter(tx.conn, library.bound.workspace_id)
        await tx.conn.execute(
            "UPDATE q_a_pairs SET superseded_by = (SELECT id FROM q_a_pairs WHERE question_text = 'C?')"
            " WHERE question_text = 'B?'"
        )
    query = ExportPairs(workspace_id=library.bound.workspace_id)
    page = await answer_export(query, library.db)
    assert ([pair.question for pair in page.pairs], page.superseded, page.sensitive) == (["C?"], 1, 1)
    page = await answer_export(query.model_copy(update={"include_sensitive": True}), library.db)
    assert ([pair.question for pair in page.pairs], page.superseded, page.sensitive) == (["A?", "C?"], 1, 0)


async def test_another_workspace_sees_none_of_it(make: Make) -> None:
    first, second = await make(), await make()
    first.put("a.md", block("A?", "x"))
    await first.ingest.look()
    assert await Out(second).pairs() == []


@pytest.mark.parametrize("after", ["", "x", "a|b|c", "2024-01-01|0|x", f"2024-01-01T00:00:00|0|{'0' * 32}", "9|9|9|9"])
async def test_a_place_that_is_none_is_told(make: Make, after: str) -> None:
    library = await make()
    with pytest.raises(Refused, match="after: it is not the `next` of a page"):
        await answer_export(ExportPairs(workspace_id=library.bound.workspace_id, after=after), library.db)
