"""Every public FAQ file with what must come of it: counted by hand, so that a change of the count is a decision."""

from __future__ import annotations

import importlib
import io
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.qa_ingest.documents import word
from services.qa_ingest.extractors.base import FileRejected
from services.qa_ingest.tests import independent
from services.qa_ingest.tests.independent import W, is_gone
from services.qa_ingest.tests.public_files import SHARED, needs_files

MARKDOWN, TABLES, SHEETS, BUNDLE = (
    "markdown_heading_v1",
    "docx_pattern_positional",
    "xlsx_table_v1",
    "yaml_frontmatter_v1",
)
Outcome = tuple[str, int, dict[str, int]] | tuple[str, str]
CRA, PLAIN = "01-cra-hub-faq", "02-plainanswer"

# Path: the extractor, and then the number of pairs and of rejects by reason; or why the whole file is refused.
OUTCOMES: dict[str, Outcome] = {
    # One heading a file, which is the question. Five have nothing below it, five ask for guidance instead.
    **dict.fromkeys((f"{CRA}/faq/{name}.md" for name in (
        "attestations/what-is-a-security-attestation", "cra-itself/actual-costs", "cra-itself/ce-mark",
        "cra-itself/cra-expert-group", "cra-itself/cra", "cra-itself/freeware", "cra-itself/monetisation",
        "cra-itself/open-source", "cra-itself/out-of-scope", "cra-itself/profit", "cra-itself/scope", "cra-itself/text",
        "cra-itself/timeline", "due-diligence/what-is-due-diligence",
        "important-and-critical-products/inheriting-product-classification", "legislation/blue-guide",
        "legislation/legal-person", "maintainers/consultants", "maintainers/contributors", "maintainers/donations",
        "maintainers/enforcement", "maintainers/grants", "maintainers/living-expenses", "maintainers/monetization",
        "maintainers/multiple-maintainers-steward", "maintainers/no-monetization", "maintainers/paid-dev",
        "maintainers/penalties", "maintainers/popularity", "maintainers/should-i-worry",
        "maintainers/solo-maintainer-steward", "maintainers/sponsorware", "maintainers/technical-support",
        "maintainers/transparency", "manufacturers/both-manufacturer-and-steward",
        "manufacturers/enforcement-enterprise",
        "manufacturers/enforcement-sme", "manufacturers/funding-foss-dev", "manufacturers/mistakes",
        "manufacturers/service-providers", "manufacturers/what-is-a-manufacturer", "projects/binaries",
        "projects/monetizing", "projects/scope", "remote-processing/3rd-party", "remote-processing/basics",
        "remote-processing/in-house", "remote-processing/infra", "remote-processing/out-of-scope",
        "remote-processing/scope", "standards/harmonised-standards", "stewards/do-all-projects-have-stewards",
        "stewards/documentation", "stewards/enforcement", "stewards/essential-requirements", "stewards/evidence",
        "stewards/for-profit", "stewards/manufacturer-vs-steward", "stewards/notification-obligations",
        "stewards/obligations", "stewards/paying-developers", "stewards/sbom", "stewards/what-is-a-steward",
        "stewards/who-can-be-steward", "stewards/whose-codebase", "vulnerability-handling/csirt",
        "vulnerability-handling/enisa",
    )), (MARKDOWN, 1, {})),
    **dict.fromkeys((f"{CRA}/faq/{name}.md" for name in (
        "due-diligence/relation-to-attestations", "legislation/nlf", "stewards/demonstrate", "stewards/penalties",
        "stewards/translation-costs",
    )), (MARKDOWN, 0, {"no_answer": 1})),
    **dict.fromkeys((f"{CRA}/faq/pending-guidance/{name}.md" for name in (
        "csirt-identification", "custom-dev", "legal-person-definition", "manufacturer-steward-dual-role",
        "open-source-guidance",
    )), (MARKDOWN, "no_questions")),
    f"{CRA}/LICENSE.md": (MARKDOWN, "no_questions"),
    f"{CRA}/faq/AUTHORS.md": (MARKDOWN, "no_questions"),
    f"{CRA}/faq/README.md": (MARKDOWN, "no_questions"),
    # Each heading of the third level is a question.
    f"{PLAIN}/answers/01-company-and-scope.md": (MARKDOWN, 8, {}),
    f"{PLAIN}/answers/02-data-handling-and-privacy.md": (MARKDOWN, 14, {}),
    f"{PLAIN}/answers/03-hosting-and-infrastructure.md": (MARKDOWN, 10, {}),
    f"{PLAIN}/answers/04-access-control.md": (MARKDOWN, 10, {}),
    f"{PLAIN}/answers/05-secure-development.md": (MARKDOWN, 10, {}),
    f"{PLAIN}/answers/06-backup-and-continuity.md": (MARKDOWN, 9, {}),
    f"{PLAIN}/answers/07-incident-response.md": (MARKDOWN, 9, {}),
    f"{PLAIN}/answers/08-subprocessors-and-vendors.md": (MARKDOWN, 7, {}),
    f"{PLAIN}/answers/09-devices-and-endpoints.md": (MARKDOWN, 9, {}),
    f"{PLAIN}/answers/10-certifications-and-compliance.md": (MARKDOWN, 8, {}),
    f"{PLAIN}/answers/11-ai-and-automation.md": (MARKDOWN, 7, {}),
    f"{PLAIN}/answers/README.md": (MARKDOWN, "no_questions"),
    f"{PLAIN}/LICENSE": (BUNDLE, "other_kind"),
    # Tables whose columns have other names: one reject a table.
    "03-asvs-redline/redline.docx": (TABLES, 0, {"no_question_header": 22}),
    "04-asvs-xlsx/ASVS-excel-v3.0.1.xlsx": (SHEETS, 0, {"no_question_header": 2}),
    # Prose without a table.
    "08-vrdb/FAQ.docx": (TABLES, "no_tables"),
    "09-dash/FAQ.docx": (TABLES, "no_tables"),
    # Questions for others to answer, in a format of their own.
    **dict.fromkeys((f"13-vsaq/{name}.json" for name in (
        "infrastructure", "physical_and_datacenter", "security_privacy_programs", "webapp",
    )), (BUNDLE, "other_kind")),
    "15-fixtures/docling/content_control_with_picture.docx": (TABLES, "no_tables"),
    "15-fixtures/docling/docx_checkboxes.docx": (TABLES, 0, {"no_question_header": 1}),
    "15-fixtures/docling/docx_rich_cells.docx": (TABLES, 0, {"no_question_header": 7}),
    "15-fixtures/docling/tablecell.docx": (TABLES, 0, {"no_question_header": 2}),
    "15-fixtures/docling/textbox.docx": (TABLES, "no_tables"),
    "15-fixtures/docling/word_tables.docx": (TABLES, 0, {"no_question_header": 7}),
    "15-fixtures/docling/xlsx_05_table_with_title.xlsx": (SHEETS, 0, {"no_question_header": 1}),
    # Three sheets with three questions each, and three rows of the third that belong to a table beside it.
    "15-fixtures/docling/xlsx_06_edge_cases_.xlsx": (SHEETS, 9, {"no_question": 3}),
    "15-fixtures/docling/xlsx_07_gap_tolerance_.xlsx": (SHEETS, 0, {"no_question_header": 1}),
    "15-fixtures/docling/xlsx_09_section_label_header.xlsx": (SHEETS, 0, {"no_question_header": 1}),
    "15-fixtures/unstructured/docx-tables.docx": (TABLES, 0, {"no_question_header": 3}),
    "15-fixtures/unstructured/page-breaks.docx": (TABLES, "no_tables"),
    "15-fixtures/unstructured/password_protected.xlsx": (SHEETS, "encrypted_or_legacy"),
    "15-fixtures/unstructured/tables-with-incomplete-rows.docx": (TABLES, 0, {"no_question_header": 6}),
    "15-fixtures/unstructured/vodafone.xlsx": (SHEETS, 0, {"no_question_header": 1}),
    "15-fixtures/unstructured/xlsx-subtable-cases.xlsx": (SHEETS, 0, {"no_question_header": 1}),
    "SOURCE.md": (MARKDOWN, "no_questions"),
}  # fmt: skip


@needs_files
def test_every_file_is_in_the_table() -> None:
    assert {str(path.relative_to(SHARED)) for path in SHARED.rglob("*") if path.is_file()} == set(OUTCOMES)


@needs_files
@pytest.mark.parametrize("path", OUTCOMES)
def test_outcome_and_ledger(path: str) -> None:
    """The outcome of the table, and a ledger that a count by another reader agrees with."""
    outcome = OUTCOMES[path]
    found = independent.check(outcome[0], Path(path).name, (SHARED / path).read_bytes())
    if len(outcome) == 2:
        assert isinstance(found, FileRejected)
        assert found.code == outcome[1]
    else:
        assert not isinstance(found, FileRejected)
        assert (len(found.pairs), Counter(each.reason for each in found.rejects)) == outcome[1:]


@needs_files
@pytest.mark.parametrize("path", [path for path, outcome in OUTCOMES.items() if PLAIN in path and len(outcome) == 3])
def test_pairs_are_as_many_as_headings(path: str) -> None:
    text = (SHARED / path).read_text()
    assert OUTCOMES[path][1] == len(re.findall(r"^### ", text, re.MULTILINE))


# --- the Word reader against another one ------------------------------------------------------------------------

WORD_FILES = [path for path in OUTCOMES if path.endswith(".docx")]
SQUASHED = re.compile(r"\W+")


# docling takes 20 s for one, and fails on a comment in the XML of the other; python-docx reads them.
NOT_BY_DOCLING = {"03-asvs-redline/redline.docx", "15-fixtures/unstructured/tables-with-incomplete-rows.docx"}


@needs_files
@pytest.mark.parametrize("path", WORD_FILES)
def test_cells_hold_what_another_reader_finds_in_them(path: str) -> None:
    """Whatever word stands in a cell of docling's or python-docx's tables stands in one of ours."""
    _compare(path, _by_python_docx if path in NOT_BY_DOCLING else _by_docling)


@needs_files
@pytest.mark.drill
def test_the_redline_holds_what_docling_finds() -> None:
    _compare("03-asvs-redline/redline.docx", _by_docling)


def _compare(path: str, read: Callable[[bytes], list[str]]) -> None:
    content = (SHARED / path).read_bytes()
    tables = [block for block in word.read(content).blocks if isinstance(block, word.WordTable)]
    text = "\n".join(map(_text, tables))
    cells = read(content)
    missing = Counter(independent.WORD.findall("\n".join(cells))) - Counter(independent.WORD.findall(text))
    squashed = SQUASHED.sub("", text)  # where a style changes within a word, some readers put a blank
    assert [each for each in missing if each not in squashed] == []
    assert bool(cells) == bool(tables)


def _by_python_docx(content: bytes) -> list[str]:
    document: Any = importlib.import_module("docx").Document(io.BytesIO(content))
    return [cell.text for table in document.tables for row in table.rows for cell in row.cells]


def _text(table: word.WordTable) -> str:
    return "\n".join(word.text_of(cell.blocks) for row in table.rows for cell in row)


def _by_docling(content: bytes) -> list[str]:
    """The texts of all cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        backend: Any = importlib.import_module("docling.backend.msword_backend").MsWordDocumentBackend
        formats = importlib.import_module("docling.datamodel.base_models").InputFormat
        given = importlib.import_module("docling.datamodel.document").InputDocument(
            path_or_stream=io.BytesIO(content), format=formats.DOCX, backend=backend, filename="a.docx"
        )
        document = backend(given, io.BytesIO(content)).convert()
    return [cell.text for table in document.tables for cell in table.data.table_cells]


@needs_files
def test_the_redline_keeps_its_ticks_and_inserted_words() -> None:
    content = (SHARED / "03-asvs-redline/redline.docx").read_bytes()
    document = word.read(content)
    tables = [block for block in document.blocks if isinstance(block, word.WordTable)]
    text = "\n".join(map(_text, tables))
    (root, *_) = independent.parts(content)
    kept = [each for table in root.iter(f"{W}tbl") for each in table.iter(f"{W}sym", f"{W}t") if not is_gone(each)]
    ticks = sum(1 if each.tag == f"{W}sym" else (each.text or "").count("✓") for each in kept)
    assert len(tables) == 22
    assert text.count("✓") + text.count("\ufffd") == ticks > 300
    inserted = [each for each in kept if next(each.iterancestors(f"{W}ins"), None) is not None and each.tag == f"{W}t"]
    squashed = SQUASHED.sub("", text)
    assert len(inserted) > 50
    assert [each.text for each in inserted if SQUASHED.sub("", each.text or "") not in squashed] == []
    assert document.left_out["tracked_deletion"] == independent.deleted(content)
