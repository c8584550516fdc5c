"""Small PDF files for tests, written object by object, so that each holds exactly the oddity under test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Radio:
    """A group of radio buttons: the state of each button."""

    name: str
    states: Sequence[str]
    labels: Sequence[str] = ()


@dataclass(frozen=True)
class Text:
    """A text field."""

    name: str
    value: str = ""
    flags: int = 0
    more: str = ""


@dataclass(frozen=True)
class Choice:
    """A list; pairs are (written, shown)."""

    name: str
    options: Sequence[tuple[str, str]]


Field = Radio | Text | Choice


def pdf(objects: Mapping[int, bytes], trailer: str = "") -> bytes:
    """Objects by number as a file; 1 is the catalogue."""
    made = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    at: dict[int, int] = {}
    for number, body in sorted(objects.items()):
        at[number] = len(made)
        made += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    start, size = len(made), max(objects) + 1
    made += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for number in range(1, size):
        made += b"%010d %05d %c \n" % (at.get(number, 0), 0 if number in at else 65535, b"n" if number in at else b"f")
    made += b"trailer\n<< /Size %d /Root 1 0 R %b >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer.encode(), start)
    return bytes(made)


def stream(content: bytes, more: str = "") -> bytes:
    return b"<< /Length %d %b >>\nstream\n%b\nendstream" % (len(content), more.encode(), content)


def page_text(lines: Sequence[tuple[float, float, str]]) -> bytes:
    """Text at places, in points from the lower left corner."""
    shown = [f"BT /F1 10 Tf {x} {y} Td ({text}) Tj ET" for x, y, text in lines]
    return stream("\n".join(shown).encode("latin-1"))


def flat(*pages: Sequence[str]) -> bytes:
    """A PDF of pages of text lines, without fields."""
    objects: dict[int, bytes] = {1: b"<< /Type /Catalog /Pages 2 0 R >>", 3: FONT}
    kids = []
    for number, lines in enumerate(pages):
        page, content = 10 + 2 * number, 11 + 2 * number
        kids.append(f"{page} 0 R")
        objects[page] = _page(content, "")
        objects[content] = page_text([(50, 780 - 14 * n, line) for n, line in enumerate(lines)])
    objects[2] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>".encode()
    return pdf(objects)


def form(*asked: tuple[str, Field], catalogue: str = "", acro: str = "") -> bytes:
    """A PDF of one page with a field beside each question."""
    objects: dict[int, bytes] = {
        1: f"<< /Type /Catalog /Pages 2 0 R /AcroForm 4 0 R {catalogue} >>".encode(),
        2: b"<< /Type /Pages /Kids [10 0 R] /Count 1 >>",
        3: FONT,
        11: b"",
    }
    lines: list[tuple[float, float, str]] = []
    fields: list[int] = []
    annotations: list[int] = []
    for number, (question, field) in enumerate(asked):
        y, first = 760 - 40 * number, 20 + 20 * number
        lines.append((50, y, question))
        fields.append(first)
        if isinstance(field, Radio):
            kids = [first + 1 + n for n in range(len(field.states))]
            listed = " ".join(f"{kid} 0 R" for kid in kids)
            objects[first] = f"<< /FT /Btn /Ff {1 << 15} /T ({field.name}) /Kids [{listed}] >>".encode()
            for n, (kid, state) in enumerate(zip(kids, field.states, strict=True)):
                x = 300 + 80 * n
                objects[kid] = _widget(
                    10,
                    (x, y - 2, x + 10, y + 10),
                    f"/Parent {first} 0 R /AS /Off /AP << /N << /{state} 5 0 R /Off 5 0 R >> >>",
                )
                if field.labels:
                    lines.append((x + 14, y, field.labels[n]))
            annotations += kids
            continue
        annotations.append(first)
        if isinstance(field, Choice):
            options = " ".join(f"[({written}) ({shown})]" for written, shown in field.options)
            told = f"/FT /Ch /Ff {1 << 17} /Opt [{options}] /DA (/F1 10 Tf 0 g)"
        else:
            value = f"/V ({field.value})" if field.value else ""
            told = f"/FT /Tx /Ff {field.flags} {value} /DA (/F1 10 Tf 0 g) {field.more}"
        objects[first] = _widget(10, (300, y - 4, 560, y + 14), f"/T ({field.name}) {told}")
    objects[4] = (
        f"<< /Fields [{' '.join(f'{n} 0 R' for n in fields)}] /DR << /Font << /F1 3 0 R >> >>"
        f" /DA (/F1 10 Tf 0 g) {acro} >>"
    ).encode()
    objects[5] = stream(b"", "/Type /XObject /Subtype /Form /BBox [0 0 10 10]")
    objects[10] = _page(11, f"/Annots [{' '.join(f'{n} 0 R' for n in annotations)}]")
    objects[11] = page_text(lines)
    return pdf(objects)


FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"


def _page(content: int, more: str) -> bytes:
    return (
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents {content} 0 R"
        f" /Resources << /Font << /F1 3 0 R >> >> {more} >>"
    ).encode()


def _widget(page: int, box: tuple[float, float, float, float], more: str) -> bytes:
    left, bottom, right, top = box
    return (
        f"<< /Type /Annot /Subtype /Widget /P {page} 0 R /F 4 /Rect [{left} {bottom} {right} {top}] {more} >>"
    ).encode()
