"""An older platform's rows become pairs: what is kept, what is mended, what fails the file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from libs.contracts.queries.qa_ingest import ImportLegacyPairs, LegacyImported, SearchPairs
from libs.embeddings import embedder_from
from libs.service_kit.db import Database
from libs.service_kit.errors import Refused
from services.qa_ingest import answers
from services.qa_ingest.domain.legacy import Legacy, LegacyRejected, read, read_memberships
from services.qa_ingest.embedding import Embedding
from services.qa_ingest.legacy import answer_import
from services.qa_ingest.tests.test_ingest import Library

LONG = "How long do you keep personal data of former customers, in which countries, and under whose control?"
OLD, NEW, ARCHIVED = (UUID(f"00000000-0000-4000-8000-00000000000{n}") for n in (1, 2, 3))


def row(identity: UUID = OLD, question: str = LONG, answer: str = "Six years.", **columns: Any) -> dict[str, Any]:
    """A row as the older platform wrote it: the question cut for the title, whole in the content."""
    return {
        "id": str(identity),
        "content_type": "q_a_pair",
        "title": question[:120],
        "content": f"Q: {question}\n\n{answer}\n\n",
        "answer_standard": answer,
        "answer_advanced": None,
        "workspace_id": None,
        "created_at": "2024-05-01T10:00:00+00:00",
        "publication_status": "published",
        "metadata": {
            "section_name": "Data",
            "table_index": 0,
            "row_index": 4,
            "has_standard": True,
            "import_batch": "b1",
        },
        "source_file": "answers.docx",
        "user_tags": ["gdpr"],
        "summary": "Six years",
        "embedding": "[0.1,0.2]",
        **columns,
    }


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


def refused(text: str, **options: Any) -> list[str]:
    with pytest.raises(LegacyRejected) as error:
        read(text, **{"is_csv": False, "into": OLD, **options})
    return [str(problem) for problem in error.value.problems]


def test_the_question_is_whole_again_and_what_was_kept_beside_is_kept() -> None:
    question = f"{LONG} And where is it written down?"
    assert len(question) > 120
    (pair,) = read(lines(row(question=question)), is_csv=False, into=NEW).pairs
    assert (pair.line, pair.id, pair.workspace_id, pair.question) == (1, OLD, NEW, question)
    assert (pair.answer_standard, pair.answer_advanced, pair.scope_tags) == ("Six years.", None, ("gdpr",))
    assert [source.model_dump() for source in pair.sources] == [
        {"file": "answers.docx", "table_index": 0, "row_index": 4}
    ]
    assert pair.metadata == {"section_name": "Data", "import_batch": "b1"}


def test_without_an_answer_of_its_own_the_content_below_the_question_is_it() -> None:
    (pair,) = read(lines(row(answer_standard=None)), is_csv=False, into=NEW).pairs
    assert pair.answer_standard == "Six years."
    only_advanced = row(answer_standard=None, answer_advanced="All.", content=f"Q: {LONG}\n\n\n\nAll.")
    (pair,) = read(lines(only_advanced), is_csv=False, into=NEW).pairs
    assert (pair.answer_standard, pair.answer_advanced) == ("All.", None)


def test_csv_as_postgres_writes_it() -> None:
    rows = [
        row(
            answer='First.\n\nSecond, with "quotes".',
            created_at="2024-05-01 10:00:00.5+00",
            scope_tag='{gdpr,"a, b","say \\"x\\""}',
            metadata='{"section_name": "Data", "table_index": 0}',
        ),
        row(NEW, "Why?", "Because."),
    ]
    rows[0]["user_tags"] = "{other}"
    rows[1]["metadata"], rows[1]["user_tags"], rows[1]["scope_tag"] = "{}", "{}", ""
    out = io.StringIO()
    writer = csv.DictWriter(out, [*rows[0]])
    writer.writeheader()
    writer.writerows(rows)
    first, second = read(out.getvalue(), is_csv=True, into=NEW).pairs
    assert (first.line, second.line) == (2, 11)
    assert first.scope_tags == ("gdpr", "a, b", 'say "x"')
    assert first.answer_standard == 'First.\n\nSecond, with "quotes".'
    assert first.created_at.isoformat() == "2024-05-01T10:00:00.500000+00:00"
    assert (second.question, second.scope_tags) == ("Why?", ())


def test_rows_of_other_types_are_passed_by_and_a_title_that_asks_else_is_told() -> None:
    found = read(lines({"content_type": "article"}, row(title="What now?")), is_csv=False, into=NEW)
    assert (len(found.pairs), found.others, [each.line for each in found.notices]) == (1, 1, [2])


def test_the_workspace_is_that_of_the_row_or_of_the_memberships_and_never_a_guess() -> None:
    assert refused(lines(row(), row(NEW, workspace_id=str(OLD))), into=None) == [
        "line 1: its workspace is missing: add the column workspace_id, name the memberships, or one workspace for all"
    ]
    memberships = read_memberships(f"content_item_id,workspace_id\n{str(OLD).upper()},{NEW}\n")
    (pair,) = read(lines(row()), is_csv=False, memberships=memberships).pairs
    assert pair.workspace_id == NEW
    with pytest.raises(LegacyRejected, match=r"line 3: .* is in two workspaces; a pair is in one"):
        read_memberships(f"content_item_id,workspace_id\n{OLD},{NEW}\n{OLD},{OLD}\n")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"content": "Six years."}, "content has no `Q:` line"),
        ({"content": "Q: \n\nSix years."}, "content has no `Q:` line"),
        ({"content": "Q: Why?", "answer_standard": ""}, "it has no answer"),
        ({"id": "7"}, "id: "),
        ({"publication_status": "live"}, "publication_status: "),
        ({"publication_status": "archived"}, "archived_at and the publication_status `archived` go together"),
        ({"governance_review_status": "late"}, "governance_review_status: "),
        ({"review_cadence_days": 0}, "review_cadence_days: "),
        ({"created_at": None}, "created_at: Field required"),
        ({"created_at": "2024-05-01T10:00:00"}, "created_at: "),
        ({"metadata": "{"}, "metadata is no JSON object"),
        ({"user_tags": "gdpr"}, "user_tags is no list of texts"),
        ({"answer_standard": "x" * 50_001}, "answer_standard: "),
        ({"superseded_by": str(OLD)}, "superseded_by is the pair itself"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(changed: dict[str, Any], told: str) -> None:
    (problem,) = refused(lines(row(NEW), row(**changed)))
    assert problem.startswith("line 2: ")
    assert told in problem


def test_every_problem_of_a_file_is_told() -> None:
    assert [each.split(":")[0] for each in refused("nonsense\n[1]\n" + lines(row(), row()))] == [
        "line 1",
        "line 2",
        "line 4",
    ]
    assert refused("") == ["line 1: no row has the content_type q_a_pair"]
    assert refused("id,content_type\n1\n", is_csv=True) == ["line 2: 1 fields, and the header names 2"]


# --- into the library ------------------------------------------------------------------------------------------


class Import:
    """Takes files into a library."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.embedder = embedder_from("static")
        self.embedding = Embedding(library.db, self.embedder, list)

    def read(self, *rows: dict[str, Any]) -> Legacy:
        return read(lines(*rows), is_csv=False, into=self.library.bound.workspace_id)

    async def take(self, *rows: dict[str, Any], found: Legacy | None = None) -> LegacyImported:
        pairs = (found or self.read(*rows)).pairs
        query = ImportLegacyPairs(pairs=pairs, file="content_items.jsonl", by="ada")
        return await answer_import(query, self.library.db, self.embedding)

    async def ids(self) -> Sequence[Any]:
        return await self.library.rows("SELECT id, version FROM q_a_pairs ORDER BY id")


@pytest.fixture
async def imports(database: Callable[[str], Awaitable[Database]], tmp_path: Path) -> Import:
    library = Library(await database("qa_ingest"), tmp_path)
    await library.ingest.prepare()
    return Import(library)


async def test_ids_status_and_review_fields_are_kept_and_a_second_run_changes_nothing(imports: Import) -> None:
    rows = [
        row(
            OLD,
            superseded_by=str(NEW),
            governance_review_status="approved",
            governance_review_due="2026-01-01T00:00:00Z",
            governance_reviewer="kim",
            next_review_date="2026-02-01",
            review_cadence_days=90,
            created_by="lee",
            updated_by="max",
        ),
        row(NEW, "Why is it six years?", "The law."),
        row(
            ARCHIVED,
            "What did you do before?",
            publication_status="archived",
            archived_at="2025-01-01T00:00:00Z",
            archived_by="kim",
            archive_reason="old",
        ),
    ]
    told = await imports.take(*rows)
    assert (told.imported, told.there_already) == (3, 0)
    columns = (
        "SELECT publication_status, superseded_by, governance_review_status, governance_reviewer,"
        " next_review_date::text, review_cadence_days, created_by, updated_by, origin_kind, archive_reason,"
        " valid_from::date::text, created_at::date::text FROM q_a_pairs ORDER BY id"
    )
    day, kind = "2024-05-01", "imported_legacy"
    assert await imports.library.rows(columns) == [
        ("published", NEW, "approved", "kim", "2026-02-01", 90, "lee", "max", kind, None, day, day),
        ("published", None, None, None, None, None, "ada", "ada", kind, None, day, day),
        ("archived", None, None, None, None, None, "ada", "ada", kind, "old", day, day),
    ]
    history = await imports.library.rows("SELECT change_type, change_reason, operation_id FROM q_a_pair_history")
    assert history == [("initial_ingest", "imported from content_items.jsonl for ada", told.operation_id)] * 3
    before = await imports.library.rows("SELECT * FROM q_a_pairs ORDER BY id")
    rows[1]["answer_standard"] = "Another law, which a later export would say."
    again = await imports.take(*rows)
    assert (again.imported, again.there_already) == (0, 3)
    assert await imports.library.rows("SELECT * FROM q_a_pairs ORDER BY id") == before


async def test_the_question_alone_is_embedded_at_once(imports: Import) -> None:
    await imports.take(row())
    ((model, distance),) = await imports.library.rows(
        "SELECT embedding_model, embedding <=> (SELECT embedding FROM embedding_cache) FROM question_variants"
    )
    assert (model, distance) == (imports.embedder.model, pytest.approx(0, abs=1e-6))
    texts = await imports.library.rows(
        "SELECT count(*) FROM embedding_cache JOIN question_variants ON text_sha256 = question_sha256"
    )
    assert texts == [(1,)]
    query = SearchPairs(workspace_ids=(imports.library.bound.workspace_id,), query=LONG)
    found = await answers.answer_search(query, imports.library.db, imports.embedder)
    assert [(hit.id, hit.similarity) for hit in found.results] == [(OLD, 1.0)]


async def test_nothing_of_a_file_is_there_when_one_row_cannot_be(imports: Import) -> None:
    elsewhere = read(
        lines(row(), row(NEW, workspace_id=str(ARCHIVED))),
        is_csv=False,
        memberships={str(OLD): str(imports.library.bound.workspace_id)},
    )
    with pytest.raises(Refused, match="line 2: its workspace is not known here"):
        await imports.take(found=elsewhere)
    with pytest.raises(Refused, match="line 2: superseded_by names a pair that is neither"):
        await imports.take(row(), row(NEW, superseded_by=str(ARCHIVED)))
    with pytest.raises(Refused, match="lines 1, 2: these pairs supersede each other in a circle"):
        await imports.take(row(superseded_by=str(NEW)), row(NEW, superseded_by=str(OLD)))
    assert await imports.ids() == []


async def test_an_id_of_another_workspace_is_told_and_not_passed_by(imports: Import, tmp_path: Path) -> None:
    await imports.take(row())
    other = Library(imports.library.db, tmp_path, workspace="other")
    await other.ingest.prepare()
    with pytest.raises(Refused, match="line 2: a pair with its id is in another workspace"):
        await Import(other).take(row(NEW), row())
    assert await Import(other).ids() == []
