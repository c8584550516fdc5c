"""Small Word files for tests, written as XML, so that each holds exactly the oddity under test."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from xml.sax.saxutils import escape

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
W14 = 'xmlns:w14="http://schemas.microsoft.com/office/word/2010/wordml"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
STYLES = (
    f"<w:styles {W}>"
    + "".join(
        f'<w:style w:type="paragraph" w:styleId="H{n}"><w:name w:val="heading {n}"/></w:style>' for n in (1, 2, 3)
    )
    + '<w:style w:type="paragraph" w:styleId="ListBullet"><w:name w:val="List Bullet"/>'
    '<w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr></w:style>' + "</w:styles>"
)
NUMBERING = (
    f'<w:numbering {W}><w:abstractNum w:abstractNumId="1"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/></w:lvl>'
    '</w:abstractNum><w:abstractNum w:abstractNumId="2"><w:lvl w:ilvl="0"><w:numFmt w:val="decimal"/></w:lvl>'
    '</w:abstractNum><w:num w:numId="1"><w:abstractNumId w:val="1"/></w:num>'
    '<w:num w:numId="2"><w:abstractNumId w:val="2"/></w:num></w:numbering>'
)


def package(members: dict[str, str | bytes]) -> bytes:
    """A ZIP of these parts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def word(*body: str, more: dict[str, str] | None = None) -> bytes:
    """A Word document with this body."""
    document = f"<w:document {W} {W14} {MC}><w:body>{''.join(body)}</w:body></w:document>"
    parts = {"word/document.xml": document, "word/styles.xml": STYLES, "word/numbering.xml": NUMBERING}
    return package({**parts, **(more or {})})


def run(text: str, properties: str = "") -> str:
    """A run of text."""
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def par(*content: str, properties: str = "") -> str:
    """A paragraph of runs; plain text becomes one."""
    runs = "".join(each if each.startswith("<") else run(each) for each in content)
    return f"<w:p><w:pPr>{properties}</w:pPr>{runs}</w:p>"


def heading(level: int, text: str) -> str:
    """A heading."""
    return par(text, properties=f'<w:pStyle w:val="H{level}"/>')


def item(text: str, number: int = 1) -> str:
    """A list item: 1 has bullets, 2 counts."""
    return par(text, properties=f'<w:numPr><w:ilvl w:val="0"/><w:numId w:val="{number}"/></w:numPr>')


def cell(*content: str, span: int = 1, merge: str = "") -> str:
    """A cell; `merge` is `restart` or `continue`."""
    blocks = "".join(each if each.startswith("<") else par(each) for each in content) or "<w:p/>"
    grid = f'<w:gridSpan w:val="{span}"/>' if span > 1 else ""
    vertical = f'<w:vMerge w:val="{merge}"/>' if merge else ""
    return f"<w:tc><w:tcPr>{grid}{vertical}</w:tcPr>{blocks}</w:tc>"


def row(*cells: str, properties: str = "") -> str:
    """A row; plain text becomes a cell."""
    content = "".join(each if each.startswith(("<w:tc>", "<w:sdt>")) else cell(each) for each in cells)
    return f"<w:tr><w:trPr>{properties}</w:trPr>{content}</w:tr>"


def table(*rows: str | Sequence[str]) -> str:
    """A table; a list becomes a row."""
    return "<w:tbl>" + "".join(each if isinstance(each, str) else row(*each) for each in rows) + "</w:tbl>"


def control(content: str, properties: str = "") -> str:
    """A content control."""
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"


def inserted(content: str) -> str:
    """A tracked insertion."""
    return f'<w:ins w:id="1" w:author="a">{content}</w:ins>'


def deleted(text: str) -> str:
    """A tracked deletion."""
    return f'<w:del w:id="2" w:author="a"><w:r><w:delText>{escape(text)}</w:delText></w:r></w:del>'
