"""Files that want to harm: refused with their reason, within a second and a bounded piece of memory."""

from __future__ import annotations

import io
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected
from services.qa_ingest.sandbox import extract_now
from services.qa_ingest.tests.office import W, package, table, word
from services.qa_ingest.tests.test_xlsx import workbook_of

OLE = bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 4096
SECONDS = 1.0
"""What refusing may take, the start of the child apart."""
GOOD_TABLE = table(["Question", "Answer"], ["Why?", "So it is."])


def stored(members: list[tuple[str, bytes]]) -> bytes:
    """A ZIP that `zipfile` would complain about: names twice, without compression."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            archive.fp.write(b"") if archive.fp else None
            archive.writestr(info, content)
    return buffer.getvalue()


def twice(name: str, first: bytes, second: bytes) -> bytes:
    """Two members of one name: what is looked at and what is read may differ."""
    placeholder = name[:-1] + "\x01"
    made = stored([(name, first), (placeholder, second)])
    return made.replace(placeholder.encode(), name.encode())


def overlapping() -> bytes:
    """Many entries of the directory that all point at one member: a bomb of small files."""
    body = zlib.compress(b"\0" * 1_000_000, 9)[2:-4]
    name = b"xl/worksheets/sheet1.xml"
    crc = zlib.crc32(b"\0" * 1_000_000)
    head = struct.pack("<4s5H3I2H", b"PK\x03\x04", 20, 0, 8, 0, 0, crc, len(body), 1_000_000, len(name), 0)
    local = head + name + body
    entries = b""
    for number in range(1_500):
        other = b"xl/worksheets/x%04d.xml" % number
        entries += (
            struct.pack(
                "<4s6H3I5H2I",
                b"PK\x01\x02",
                20,
                20,
                0,
                8,
                0,
                0,
                crc,
                len(body),
                1_000_000,
                len(other),
                0,
                0,
                0,
                0,
                0,
                0,
            )
            + other
        )
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 1_500, 1_500, len(entries), len(local), 0)
    return local + entries + end


def lying_zip64() -> bytes:
    """A member that says in its extra field that it is of 2^62 bytes."""
    content = word(GOOD_TABLE)
    at = content.rindex(b"PK\x01\x02")
    return content[:at] + content[at : at + 20] + b"\xff" * 8 + content[at + 28 :]


def flagged(flag: int) -> bytes:
    content = bytearray(word(GOOD_TABLE))
    at = content.index(b"PK\x01\x02")
    content[at + 8] |= flag
    return bytes(content)


LAUGHS = "<!DOCTYPE l [<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {chr(98 + n)} '{f'&{chr(97 + n)};' * 10}'>" for n in range(9)
)
EXTERNAL = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
DEEP = 2_000
DEEP_TABLE = "<w:tbl><w:tr><w:tc>" * DEEP + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * DEEP
MANY_ATTRIBUTES = "<w:p " + " ".join(f'a{n}="1"' for n in range(200_000)) + "/>"
STRING = '<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
SHARED = '<row r="1">' + "".join(f'<c r="{c}1" t="s"><v>0</v></c>' for c in "ABCDEFGH") + "</row>"
MANY_ROWS = "".join(
    f'<row r="{n}">' + "".join(f'<c r="{c}{n}" t="s"><v>0</v></c>' for c in "ABCDEFGH") + "</row>"
    for n in range(1, 20_001)
)


def columns(count: int) -> str:
    def letters(number: int) -> str:
        told = ""
        while number:
            number, rest = divmod(number - 1, 26)
            told = chr(65 + rest) + told
        return told

    return '<row r="1">' + "".join(f'<c r="{letters(n)}1"><v>1</v></c>' for n in range(1, count + 1)) + "</row>"


HOSTILE: dict[str, tuple[str, str, Callable[[], bytes], set[str]]] = {
    # what: extractor, name of the file, its content, codes of the refusal
    "zip bomb by ratio": (
        "docx_pattern_a",
        "a.docx",
        lambda: package({"word/document.xml": b"<a>" + b" " * 60_000_000}),
        {"zip_bomb"},
    ),
    "zip bomb of overlapping members": ("xlsx_table_v1", "a.xlsx", overlapping, {"zip_bomb", "damaged"}),
    "many members": ("docx_pattern_a", "a.docx", lambda: package({f"p{n}": "" for n in range(5_000)}), {"zip_bomb"}),
    "zip64 lie": ("docx_pattern_a", "a.docx", lying_zip64, {"zip_bomb", "no_package"}),
    "member twice": ("docx_pattern_a", "a.docx", lambda: twice("word/document.xml", b"<a/>", b"<b/>"), {"damaged"}),
    "path out of the package": (
        "docx_pattern_a",
        "a.docx",
        lambda: package({"word/../../x": "", "word/document.xml": "<a/>"}),
        {"bad_path"},
    ),
    "windows path": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: package({"..\\x": "", "xl/workbook.xml": "<a/>"}),
        {"bad_path"},
    ),
    "encrypted member": ("docx_pattern_a", "a.docx", lambda: flagged(1), {"encrypted_or_legacy"}),
    "encrypted office file": ("docx_pattern_a", "a.docx", lambda: OLE, {"encrypted_or_legacy"}),
    "xls renamed": ("xlsx_table_v1", "a.xlsx", lambda: OLE, {"encrypted_or_legacy"}),
    "xlsb renamed": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: package({"xl/workbook.bin": b"\x83\x01\x00", "xl/worksheets/sheet1.bin": b"\x81\x01\x00"}),
        {"bad_workbook"},
    ),
    "docx renamed to xlsx": ("xlsx_table_v1", "a.xlsx", lambda: word(GOOD_TABLE), {"bad_workbook"}),
    "xlsx renamed to docx": ("docx_pattern_a", "a.docx", lambda: workbook_of(SHARED), {"no_word_document"}),
    "macro document": (
        "docx_pattern_a",
        "a.docx",
        lambda: word(GOOD_TABLE, more={"word/vbaProject.bin": "x"}),
        {"macros"},
    ),
    "macro workbook": (
        "xlsx_table_v1",
        "a.xlsm",
        lambda: package({"xl/vbaProject.bin": "x", "xl/workbook.xml": "<a/>"}),
        {"macros"},
    ),
    "billion laughs": (
        "docx_pattern_a",
        "a.docx",
        lambda: package({"word/document.xml": LAUGHS + "]><w:document>&j;</w:document>"}),
        {"document_type"},
    ),
    "laughs in a workbook": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: workbook_of(SHARED, LAUGHS + f"]>{STRING}<si><t>&j;</t></si></sst>"),
        {"document_type"},
    ),
    "laughs in the sheet": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: package({"xl/workbook.xml": "<a/>", "xl/worksheets/sheet1.xml": LAUGHS + "]><a>&j;</a>"}),
        {"document_type"},
    ),
    "external entity": (
        "docx_pattern_a",
        "a.docx",
        lambda: package({"word/document.xml": EXTERNAL + "<a>&a;</a>"}),
        {"document_type"},
    ),
    "entity in another part": (
        "docx_pattern_a",
        "a.docx",
        lambda: word(GOOD_TABLE, more={"word/styles.xml": EXTERNAL + "<a>&a;</a>"}),
        {"document_type"},
    ),
    "entity in UTF-16": (
        "docx_pattern_a",
        "a.docx",
        lambda: package(
            {
                "word/document.xml": ("<?xml version='1.0' encoding='utf-16'?>" + EXTERNAL + "<a>&a;</a>").encode(
                    "utf-16"
                )
            }
        ),
        {"document_type"},
    ),
    "tables nested 2,000 deep": ("docx_pattern_a", "a.docx", lambda: word(DEEP_TABLE), {"too_deep"}),
    "elements nested 100,000 deep": (
        "docx_pattern_a",
        "a.docx",
        lambda: package({"word/document.xml": f"<w:document {W}><w:body>" + "<w:p>" * 100_000}),
        {"bad_xml", "too_deep"},
    ),
    "200,000 attributes": ("docx_pattern_a", "a.docx", lambda: word(MANY_ATTRIBUTES), {"no_tables"}),
    "10,000 columns": ("xlsx_table_v1", "a.xlsx", lambda: workbook_of(columns(10_000)), {"too_large"}),
    "a cell far away": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: workbook_of('<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'),
        {"too_large"},
    ),
    "a row that says another number": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: workbook_of('<row r="1"><c r="A1048576"><v>1</v></c><c r="ZZZ1"><v>1</v></c></row>'),
        {"too_large"},
    ),
    "one shared string 160,000 times": (
        "xlsx_table_v1",
        "a.xlsx",
        lambda: workbook_of(MANY_ROWS, f"{STRING}<si><t>{'x' * 30_000}</t></si></sst>"),
        {"too_large"},
    ),
    "10,000 columns of text": (
        "xlsx_table_v1",
        "a.csv",
        lambda: b"Question,Answer" + b",x" * 10_000 + b"\n",
        {"too_large"},
    ),
    "a field without end": ("xlsx_table_v1", "a.csv", lambda: b'Question,Answer\n"' + b"x" * 2_000_000, {"bad_csv"}),
    "UTF-16 without a mark": (
        "markdown_heading_v1",
        "a.md",
        lambda: "# Why?\n\nSo it is.\n".encode("utf-16-le") * 50,
        {"not_text"},
    ),
    "UTF-16 without a mark, a bundle": (
        "yaml_frontmatter_v1",
        "a.md",
        lambda: "---\nquestion: x\n---\ny".encode("utf-16-be"),
        {"bad_bundle", "not_utf8"},
    ),
    "two encodings": (
        "markdown_heading_v1",
        "a.md",
        lambda: b"# Why?\n\n" + "größer".encode() * 30 + b"\n\x81\x8d\x8f\x90\x9d" * 40,
        {"not_text"},
    ),
    "NUL": ("pseudo_yaml_v1", "a.md", lambda: b"---\nquestion: x\n---\ny\0z", {"not_text"}),
    "an image": ("markdown_heading_v1", "a.md", lambda: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 200, {"not_text"}),
    "a PDF": ("docx_pattern_a", "a.docx", lambda: b"%PDF-1.7\n" + b"x" * 5_000, {"no_package"}),
    "aliases": (
        "yaml_frontmatter_v1",
        "a.md",
        lambda: b"---\nquestion: x\na: &a [1]\nb: [*a,*a]\n---\ny",
        {"bad_bundle"},
    ),
    "metadata without end": (
        "yaml_frontmatter_v1",
        "a.md",
        lambda: b"---\nquestion: x\n" + b"a: b\n" * 200_000,
        {"bad_bundle"},
    ),
    "brackets without end": (
        "yaml_frontmatter_v1",
        "a.md",
        lambda: b"---\nquestion: x\na: " + b"[" * 60_000 + b"\n---\ny",
        {"bad_bundle"},
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_refused_at_once_in_bounded_memory(what: str) -> None:
    kind, name, make, codes = HOSTILE[what]
    content = make()
    extract_now("docx_pattern_a", File("a.docx", word(GOOD_TABLE)))  # the server that children are forked from is up
    began = time.process_time(), time.monotonic()
    with pytest.raises(FileRejected) as refused:
        extract_now(kind, File(name, content))
    assert refused.value.code in codes, refused.value
    assert refused.value.problems[0].message
    assert time.monotonic() - began[1] < 10 * SECONDS  # whatever else the machine does
    assert _usage(kind, name, content)["cpu_s"] < SECONDS, what


def _usage(kind: str, name: str, content: bytes) -> dict[str, Any]:
    """Seconds of the processor that reading takes, in this process."""
    began = time.process_time()
    with pytest.raises((FileRejected, RecursionError)):
        named(kind).extract(File(name, content))
    return {"cpu_s": time.process_time() - began}


OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"


def related(kind: str, target: str) -> bytes:
    """A document with one relation that leads outside."""
    relation = f'<Relationship Id="r1" Type="{OFFICE}/{kind}" Target="{target}" TargetMode="External"/>'
    part = f'<Relationships xmlns="{RELATIONS}">{relation}</Relationships>'
    return word(GOOD_TABLE, more={"word/_rels/document.xml.rels": part, "word/_rels/settings.xml.rels": part})


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("attachedTemplate", "https://example.org/evil.dotm"),
        ("attachedTemplate", "file://server/share/evil.dotm"),
        ("attachedTemplate", r"\\server\share\evil.dotm"),
        ("attachedTemplate", r"file:///\\server\share\evil.dotm"),
        ("image", "http://example.org/pixel.png"),
        ("oleObject", "mhtml:http://example.org/x.html!x"),
        ("frame", "//example.org/x"),
    ],
)
def test_what_would_be_fetched_from_elsewhere_is_refused(kind: str, target: str) -> None:
    with pytest.raises(FileRejected) as refused:
        named("docx_pattern_a").extract(File("a.docx", related(kind, target)))
    assert refused.value.code == "external_reference"
    assert "example.org" not in refused.value.problems[0].message


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("hyperlink", "https://example.org/"),
        ("attachedTemplate", r"file:///C:\Users\kim\Normal.dotm"),
        ("attachedTemplate", "Normal.dotm"),
        ("image", "C:/pictures/logo.png"),
        ("image", "data:image/png;base64,AAAA"),
    ],
)
def test_links_and_files_of_the_authors_own_computer_are_no_reason(kind: str, target: str) -> None:
    assert len(named("docx_pattern_a").extract(File("a.docx", related(kind, target))).pairs) == 1


# --- time grows with size, not with its square ------------------------------------------------------------------

REPEATED: dict[str, tuple[str, str, str, str]] = {
    # what: extractor, name, what comes first, what is repeated
    "headings": ("markdown_heading_v1", "a.md", "# Why?\n\nSo.\n", "## What is it?\n\nIt is so.\n\n"),
    "bold": ("markdown_heading_v1", "a.md", "# Why?\n\n", "**"),
    "bold lines": ("markdown_heading_v1", "a.md", "# About\n\n", "**a\n\n"),
    "fields": ("markdown_heading_v1", "a.md", "# Why?\n\n", "**Topics**: a\n"),
    "brackets": ("markdown_heading_v1", "a.md", "# Why?\n\n", "[[]("),
    "a heading of brackets": ("markdown_heading_v1", "a.md", "# Why? ", "![["),
    "a heading of stars": ("markdown_heading_v1", "a.md", "# Why ", "*a **b "),
    "a heading of backticks": ("markdown_heading_v1", "a.md", "# Why ", "`a "),
    "a heading of words": ("markdown_heading_v1", "a.md", "# what ", "is it a "),
    "quotes": ("markdown_heading_v1", "a.md", "# Why?\n\n", "> **When asked**: x **Source**: y\n"),
    "nested quotes": ("markdown_heading_v1", "a.md", "# Why?\n\nSo.\n\n", "> "),
    "rules": ("markdown_heading_v1", "a.md", "# Why?\n\nSo.\n\n", "---\n"),
    "underlines": ("markdown_heading_v1", "a.md", "# Why?\n\nSo.\n\n", "text\n---\n"),
    "duplicates": ("markdown_heading_v1", "a.md", "# Why?\n\nSo.\n\n## DEDUP FLAG\n\n", "AB-1 "),
    "tables": ("markdown_heading_v1", "a.md", "# Why?\n\n|a|\n|-|\n", "|b|\n"),
    "blocks": ("pseudo_yaml_v1", "a.md", "", "---\nid: a\nquestion: x\n---\nSo.\n"),
    "rules near YAML": ("pseudo_yaml_v1", "a.md", "---\nquestion: x\n---\nSo.\n", "---\n"),
    "keys near YAML": ("pseudo_yaml_v1", "a.md", "---\nquestion: x\n---\nSo.\n---\n", "a: b\n"),
    "rules and keys near YAML": ("pseudo_yaml_v1", "a.md", "---\nquestion: x\n---\nSo.\n", "---\na: b\n"),
    "marks near YAML": ("pseudo_yaml_v1", "a.md", "---\nquestion: x\n---\n", "[ALL] a\n"),
    "rules in a bundle": ("yaml_frontmatter_v1", "a.md", "---\nquestion: x\n---\nSo.\n", "---\n"),
    "rules and keys in a bundle": ("yaml_frontmatter_v1", "a.md", "---\nquestion: x\n---\nSo.\n", "---\na: b\n"),
    "rules and prose in a bundle": ("yaml_frontmatter_v1", "a.md", "---\nquestion: x\n---\nSo.\n", "---\n\nA: [\n"),
    "fences in a bundle": ("yaml_frontmatter_v1", "a.md", "---\nquestion: x\n---\nSo.\n", "```\n---\n"),
    "blank lines in a bundle": ("yaml_frontmatter_v1", "a.md", "---\nquestion: x\n---\nSo.\n", " \n"),
    "rows": ("xlsx_table_v1", "a.csv", "Question,Answer\n", "a,b\n"),
    "quotes in rows": ("xlsx_table_v1", "a.csv", "Question,Answer\n", '"a","b"\n'),
    "no columns": ("xlsx_table_v1", "a.csv", "", "a b c\n"),
    "every separator": ("xlsx_table_v1", "a.csv", "", "a,b;c\td|e\n"),
}  # fmt: skip


def seconds(kind: str, name: str, content: bytes) -> float:
    began = time.process_time()
    try:
        named(kind).extract(File(name, content))
    except FileRejected:
        pass
    return time.process_time() - began


@pytest.mark.parametrize("what", REPEATED)
def test_time_grows_with_size_only(what: str) -> None:
    kind, name, first, repeated = REPEATED[what]
    for size in (10_000, 60_000):
        one, four = ((first + repeated * (size * times // len(repeated))).encode() for times in (1, 4))
        long = min(seconds(kind, name, four) for _ in range(2))
        if long > 0.08:
            break  # a shorter time says nothing
    short = min(seconds(kind, name, one) for _ in range(3))
    assert long < 9 * max(short, 0.01), f"{size:,} characters: {short:.3f} s, four times that: {long:.3f} s"
