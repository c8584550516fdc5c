"""Counts a file's text by other readers than the library's own, and holds the loss ledger against that.

lxml reads Word parts, openpyxl workbooks, clevercsv separated text; text files are decoded here.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

import clevercsv
import openpyxl
from lxml import etree

from services.qa_ingest.domain.envelope import Envelope, Extracted
from services.qa_ingest.extractors import run
from services.qa_ingest.extractors.base import File, FileRejected

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
TEXTS = {f"{W}t", f"{W}delText", f"{M}t", f"{A}t"}
GONE = {f"{W}del", f"{W}moveFrom"}
BREAKS = {f"{W}tab", f"{W}br", f"{W}cr", f"{W}noBreakHyphen"}
READ_PARTS = re.compile(r"word/(document|header\d*|footer\d*|footnotes|endnotes|comments|diagrams/data\d*)\.xml\Z")
WORD = re.compile(r"\w+")
A_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}(T[\d:]+Z?)?")
# Words that give a field its name, and are the field afterwards.
LABELS = {
    "markdown_heading_v1": "ID Source Sources Topic Topics Tags When asked Detail SENSITIVE DATA",
    "pseudo_yaml_v1": "id question topics tags products ALL ADVANCED STANDARD",
    "yaml_frontmatter_v1": "id question alternate_phrasings scope_tags anti_scope_tags primary_domain provenance"
    " EXTRACTED publication_status draft valid_from sources file table_index row_index confidence sensitive false true"
    " Standard Advanced answer",
}


def total(name: str, content: bytes) -> int:
    """How many characters of text the file holds."""
    if name.endswith(".docx"):
        return sum(len(node.text or "") for root in parts(content) for node in root.iter(*TEXTS))
    if name.endswith(".xlsx"):
        return sum(len(text) for _, text in _cells(content))
    if name.endswith(".csv"):
        rows = clevercsv.reader(io.StringIO(_text(content), newline=""))
        return sum(len(value) for row in rows for value in row if value.strip())
    return len(_text(content))


def words(name: str, content: bytes) -> Counter[str]:
    """Every word that a reader of the file sees; what was deleted with tracked changes is none."""
    if name.endswith(".docx"):
        texts = [text for root in parts(content) for text in _paragraphs(root)]
    elif name.endswith(".xlsx"):
        texts = [text for _, text in _cells(content)]
    else:
        texts = [_text(content)]
    return Counter(word for text in texts for word in WORD.findall(A_DATE.sub(" ", text)))


def deleted(content: bytes) -> int:
    """Characters that tracked changes take out of the main part of a Word document."""
    root = next(part for part in parts(content) if part.tag == f"{W}document")
    return sum(len(node.text or "") for node in root.iter(*TEXTS) if is_gone(node))


def said(found: Extracted) -> Counter[str]:
    """Every word that the pairs hold, in any field."""
    return Counter(
        word for pair in found.pairs for text in _fields(pair) for word in WORD.findall(A_DATE.sub(" ", text))
    )


def check(kind: str, name: str, content: bytes) -> Extracted | FileRejected:
    """Extract a file, and hold its ledger against a count of its own; what is lost silently fails an assertion."""
    try:
        found = run(kind, File(name, content))
    except FileRejected as refused:
        if not refused.problems:
            raise AssertionError("refused without a reason") from refused
        return refused
    losses = found.losses
    counted = total(name, content)
    assert losses.total == counted, f"the ledger says {losses.total} characters, and there are {counted}"
    assert losses.pairs + losses.rejects + sum(losses.rules.values()) == losses.total
    assert losses.rejects == sum(reject.characters for reject in found.rejects), "rejects do not add up"
    assert "unread_markup" not in losses.rules, f"text that was not read: {losses.rules}"
    left_out = losses.rejects + sum(losses.rules.values())
    if name.endswith(".docx"):
        gone = losses.rules.get("tracked_deletion", 0)
        assert gone <= deleted(content), f"{gone} characters count as deleted, and {deleted(content)} are"
        left_out -= gone
    missing = words(name, content) - said(found)
    for label in WORD.findall(LABELS.get(kind, "")):
        del missing[label]
    for tag in {tag for pair in found.pairs for tag in pair.scope_tags}:
        for part in WORD.findall(tag):  # a tag that is there twice is one
            del missing[part]
    lost = sum(len(word) * times for word, times in missing.items())
    assert lost <= left_out, f"{lost} characters of words are in no pair, and {left_out} are accounted for: {missing}"
    return found


def _fields(pair: Envelope) -> Iterator[str]:
    # An answer that serves several questions is counted once in the source: `answer_text` repeats `answer_standard`.
    yield from _flat(pair.model_dump(mode="json", exclude={"answer_text", "provenance", "publication_status"}))


def _flat(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from _flat(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _flat(inner)
    elif value is not None:
        yield str(value)


def _text(content: bytes) -> str:
    text = content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return "\n".join(line.lstrip("\ufeff") for line in text.split("\n"))


def parts(content: bytes) -> Iterator[Any]:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for name in archive.namelist():
            if READ_PARTS.match(name):
                yield etree.fromstring(archive.read(name), parser)


def _paragraphs(root: Any) -> list[str]:
    """The text of each paragraph by itself, also of one in a box within another."""
    texts: dict[Any, list[str]] = {}
    for node in root.iter(*TEXTS, *BREAKS):
        paragraph = next(node.iterancestors(f"{W}p", f"{A}p"), None)
        if not is_gone(node):
            texts.setdefault(paragraph, []).append(node.text or "" if node.tag in TEXTS else " ")
    return ["".join(parts) for parts in texts.values()]


def is_gone(node: Any) -> bool:
    if node.tag == f"{W}delText" or any(True for _ in node.iterancestors(*GONE)):
        return True
    row = next(node.iterancestors(f"{W}tr"), None)
    cell = next(node.iterancestors(f"{W}tc"), None)
    taken = row is not None and row.find(f"{W}trPr/{W}del") is not None
    return bool(taken or (cell is not None and cell.find(f"{W}tcPr/{W}cellDel") is not None))


def _cells(content: bytes) -> Iterator[tuple[str, str]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workbook = openpyxl.load_workbook(io.BytesIO(content), data_only=True, read_only=True)  # as the file has it
    for sheet in workbook.worksheets:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.value is not None:
                    yield sheet.title, _shown(cell.value)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, datetime):
        return str(value.date()) if value.time() == time(0) else str(value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value).replace("\r\n", "\n").replace("_x000D_\n", "\n")
