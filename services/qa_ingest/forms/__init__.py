"""Forms: questions without answers, read and filled in their own format with nothing else changed.

Hostile bytes in, plain structures or bytes out. They run in a child process (`sandbox.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.qa_ingest.forms.base import FormFormat

CONTENT_TYPES = {
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "xlsm": "application/vnd.ms-excel.sheet.macroEnabled.12",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "docm": "application/vnd.ms-word.document.macroEnabled.12",
    "pdf": "application/pdf",
}
"""The formats of forms, by the ending of a file."""


def kind_of(content: bytes) -> str:
    """A key of `CONTENT_TYPES`, by what the bytes are, whatever they are called. Raises `Refused`."""
    from services.qa_ingest.documents.package import Package, Refused

    if b"%PDF-" in content[:1024]:
        return "pdf"
    package = Package(content)
    macros = any(name.endswith("/vbaProject.bin") for name in package.names())
    if "xl/workbook.xml" in package:
        return "xlsm" if macros else "xlsx"
    if "word/document.xml" in package:
        return "docm" if macros else "docx"
    raise Refused("unknown_format", "no form that can be read: .xlsx, .docx or .pdf was expected")


def format_of(kind: str) -> FormFormat:
    """What reads and fills forms of this kind. Raises KeyError."""
    if kind in ("xlsx", "xlsm"):
        from services.qa_ingest.forms.workbook import FORMAT as WORKBOOK

        return WORKBOOK
    if kind in ("docx", "docm"):
        from services.qa_ingest.forms.document import FORMAT as DOCUMENT

        return DOCUMENT
    if kind == "pdf":
        from services.qa_ingest.forms.pdf import FORMAT as PDF

        return PDF
    raise KeyError(kind)
