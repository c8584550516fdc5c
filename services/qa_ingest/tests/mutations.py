"""Files as mishaps leave them: cells emptied, merged, doubled or moved, marks removed, lines dropped or doubled.

Every mutation follows from its seed.
"""

from __future__ import annotations

import io
import random
import re
import warnings
import zipfile
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import openpyxl
from lxml import etree

from services.qa_ingest.tests.office import (
    W as W_NAMESPACE,
)
from services.qa_ingest.tests.office import (
    cell,
    control,
    deleted,
    heading,
    inserted,
    item,
    package,
    par,
    row,
    run,
    table,
    word,
)

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
HEADER = ["Question", "Answer", "Source"]

LIBRARY = """---
Status: Draft
---
# Library

Intro words here.

## TOPIC INDEX
- FAQ-001

## Section one
**From**: Spreadsheet
**Topics**: Insurance, Commercial

**Which parts are subcontracted?** None whatsoever.

Truly none.

**Who owns everything?**
Employees do.

#### FAQ-001: What practices exist?
**ID**: FAQ-001
**Source**: Handbook
**Topics**: Training & rollout

Several practices:

- alpha
- beta

---

| Plan | Price |
|---|---|
| Small | ten |

> **When asked**: How are people trained?
> **Source**: Form seven
> **Detail**: Mostly by telephone.

#### DEDUP FLAG: CLOUD-001 duplicates FAQ-001
Merge these.

## Is encryption used?

```
# not a heading
---
```

Always, everywhere.
"""
BUNDLE = """# Answers

Last updated: yesterday

---
id: one
question: Which exports exist?
alternate_phrasings:
  - Name the exports
scope_tags: [exports, figures]
primary_domain: reporting
---

Spreadsheets mainly.

---

Sometimes documents.

---
question: "Who reads them?"
unknown_key: kept value
---

**Standard answer:**

Managers.

**Advanced answer:**

Managers and auditors alike.

---
id: three
question: Where is everything stored?
valid_from: 2024-01-01
---
Inside Wales.
"""
NEAR_YAML = """# Library

---
id: AUD-1
question: What is offered?
topics: [overview, functionality]
products: [audit]
---
[ALL] One system.

[ADVANCED] Including trails.

---
id: AUD-2
question: "Which modules?"
Everything licensed.

---

More modules later.
"""
SEPARATED = (
    'Question,Answer,Source\n"Why, precisely?","Because, frankly.",Handbook\nAccess,,\n'
    'Who enters?,"Staff ""only""\nand guests.",Website\nWhere?,,\n,Orphan answer,\n'
)


def word_base() -> bytes:
    """A document with every kind of cell."""
    chosen = control(run("Quarterly"), "<w:dropDownList/>")
    prompt = control(run("Click here."), "<w:showingPlcHdr/>")
    footer = f"<w:ftr {W_NAMESPACE}>{par('Confidential footer')}</w:ftr>"
    first = table(
        row(cell("Company table", span=3)),
        HEADER,
        row(cell("Access", span=3)),
        ["Who enters?", "Staff alone.", "Handbook"],
        row("How long?", cell(par(run("Keep "), deleted("thirty"), inserted(run("ninety")), run(" days."))), "Policy"),
        row(cell("Which lists?", merge="restart"), cell(item("alpha"), item("beta")), ""),
        row(cell(merge="continue"), cell(table(["Plan", "Price"], ["Small", "ten"]), par("")), "Website"),
        HEADER,
        row("How often?", cell(par(run("Reviewed "), chosen, prompt)), control(cell("Calendar"))),
        ["Unanswered here?", "", ""],
        ["", "Orphaned answer.", ""],
    )
    second = table(["Continued question?", "Continued answer.", "Elsewhere"])
    framed = table(row(cell(par("Framing words"), table(HEADER[:2], ["Framed question?", "Framed answer."]), par(""))))
    other = table(["Name", "Telephone"], ["Kim", "nobody knows"])
    body = (par("Opening words."), heading(1, "Form"), first, par(""), second, par("Between."), framed, other)
    return word(*body, more={"word/footer1.xml": footer})


def workbook_base() -> bytes:
    """A workbook with merged cells and a hidden sheet."""
    workbook = openpyxl.Workbook()
    sheet = workbook.worksheets[0]
    rows: list[list[Any]] = [
        ["Our answers"],
        ["Ref", *HEADER],
        ["Access"],
        [1, "Who enters?", "Staff alone.", "Handbook"],
        [2, "When exactly?", 12.5, None],
        [3, "Really so?", True, "Website"],
        [4, "Unanswered here?", None, None],
        [5, "Several lines?", "alpha\nbeta", None],
    ]
    for cells in rows:
        sheet.append(cells)
    sheet.merge_cells("A1:D1")
    sheet.merge_cells("C6:C7")
    hidden = workbook.create_sheet("Concealed")
    hidden.append(["Concealed", "words"])
    hidden.sheet_state = "hidden"
    workbook.create_sheet("Plain").append(["Name", "Telephone"])
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def of_text(rng: random.Random, content: bytes) -> bytes:
    """Lines dropped, doubled, moved, emptied, joined; marks removed."""
    lines = content.decode().split("\n")
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(lines))
        kind = rng.randrange(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[at])
        elif kind == 2:
            lines.insert(rng.randrange(len(lines)), lines.pop(at))
        elif kind == 3:
            lines[at] = ""
        elif kind == 4:
            lines[at] = re.sub(
                rng.choice([r"^---$", r"\*\*", r"^#+ ", r"[\"']", r"\[|\]", r":", r"^> ?", r"```", r","]), "", lines[at]
            )
        elif kind == 5:
            lines[at : at + 2] = ["".join(lines[at : at + 2])]
        else:
            lines[at] = "  " + lines[at]
        lines = lines or [""]
    return "\n".join(lines).encode()


def of_word(rng: random.Random, content: bytes) -> bytes:
    """Cells, rows and tables emptied, merged, doubled, moved or taken away; marks of changes and merges removed."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    root = etree.fromstring(parts["word/document.xml"])
    for _ in range(rng.randint(1, 4)):
        rng.choice(WORD_CHANGES)(rng, root)
    parts["word/document.xml"] = etree.tostring(root)
    return package(dict(parts))


def of_workbook(rng: random.Random, content: bytes) -> bytes:
    """The same of a workbook."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        workbook = openpyxl.load_workbook(io.BytesIO(content))
    for _ in range(rng.randint(1, 4)):
        sheet = rng.choice(workbook.worksheets)
        rows, columns = max(sheet.max_row, 1), max(sheet.max_column, 1)
        at, to = (
            (rng.randint(1, rows), rng.randint(1, columns)),
            (rng.randint(1, rows + 1), rng.randint(1, columns + 1)),
        )
        one, other = sheet.cell(*at), sheet.cell(*to)
        kind = rng.randrange(7)
        if kind == 0:
            _set(one, None)
        elif kind == 1:
            _set(other, one.value)
        elif kind == 2:
            _set(other, one.value)
            _set(one, None)
        elif kind == 3 and not sheet.merged_cells.ranges:
            area = (min(at[0], to[0]), min(at[1], to[1]), max(at[0], to[0]), max(at[1], to[1]))
            sheet.merge_cells(start_row=area[0], start_column=area[1], end_row=area[2], end_column=area[3])
        elif kind == 4:
            for merged in list(sheet.merged_cells.ranges):
                sheet.unmerge_cells(str(merged))
        elif kind == 5:
            sheet.delete_rows(at[0])
        else:
            sheet.sheet_state = rng.choice(["visible", "hidden", "veryHidden"])
    workbook.worksheets[0].sheet_state = "visible"
    buffer = io.BytesIO()
    workbook.save(buffer)
    return buffer.getvalue()


def _set(one: Any, value: Any) -> None:
    if type(one).__name__ != "MergedCell":
        one.value = value


# --- Word -------------------------------------------------------------------------------------------------------


def _some(rng: random.Random, root: Any, *tags: str) -> Any | None:
    found = list(root.iter(*(f"{W}{tag}" for tag in tags)))
    return rng.choice(found) if found else None


def _emptied(rng: random.Random, root: Any) -> None:
    if (found := _some(rng, root, "tc")) is not None:
        for child in found.findall(f"{W}p") + found.findall(f"{W}tbl"):
            found.remove(child)
        found.append(etree.Element(f"{W}p"))


def _merged(rng: random.Random, root: Any) -> None:
    found = _some(rng, root, "tc")
    if found is None:
        return
    properties = found.find(f"{W}tcPr")
    if properties is None:
        properties = etree.SubElement(found, f"{W}tcPr")
    kind = rng.choice(["gridSpan", "restart", "continue"])
    etree.SubElement(properties, f"{W}{'gridSpan' if kind == 'gridSpan' else 'vMerge'}").set(
        f"{W}val", "2" if kind == "gridSpan" else kind
    )
    after = found.getnext()
    if kind == "gridSpan" and after is not None and rng.random() < 0.7:
        for child in list(after):
            found.append(child)
        after.getparent().remove(after)


def _doubled(rng: random.Random, root: Any) -> None:
    if (found := _some(rng, root, "tc", "tr", "tbl", "p", "r")) is not None:
        found.addnext(deepcopy(found))


def _moved(rng: random.Random, root: Any) -> None:
    tag = rng.choice(["tc", "tr", "tbl"])
    one, other = _some(rng, root, tag), _some(rng, root, tag)
    if one is not None and other is not None and one is not other and one not in list(other.iterancestors()):
        other.addnext(one)


def _taken_away(rng: random.Random, root: Any) -> None:
    if (found := _some(rng, root, "tc", "tr", "p")) is not None:
        found.getparent().remove(found)


def _without_mark(rng: random.Random, root: Any) -> None:
    """A wrapper goes and what it held stays: of insertions, deletions, controls; or a mark of merging goes."""
    found = _some(rng, root, "ins", "del", "sdt", "vMerge", "gridSpan", "pStyle", "showingPlcHdr")
    if found is None:
        return
    parent, at = found.getparent(), found.getparent().index(found)
    held = found.find(f"{W}sdtContent") if found.tag == f"{W}sdt" else found
    for child in reversed(list(held)) if found.tag in (f"{W}ins", f"{W}del", f"{W}sdt") else ():
        parent.insert(at + 1, child)
    parent.remove(found)


def _marked(rng: random.Random, root: Any) -> None:
    found = _some(rng, root, "r")
    if found is not None:
        wrapper = etree.Element(f"{W}{rng.choice(['ins', 'del', 'moveFrom', 'moveTo', 'smartTag'])}")
        found.addprevious(wrapper)
        wrapper.append(found)


WORD_CHANGES: list[Callable[[random.Random, Any], None]] = [
    _emptied, _merged, _doubled, _moved, _taken_away, _without_mark, _marked,
]  # fmt: skip

Change = Callable[[random.Random, bytes], bytes]
BASES: list[tuple[str, str, Callable[[], bytes], Change]] = [
    ("docx_pattern_a", "a.docx", word_base, of_word),
    ("docx_pattern_positional", "a.docx", word_base, of_word),
    ("xlsx_table_v1", "a.xlsx", workbook_base, of_workbook),
    ("xlsx_table_v1", "a.csv", SEPARATED.encode, of_text),
    ("markdown_heading_v1", "a.md", LIBRARY.encode, of_text),
    ("pseudo_yaml_v1", "a.md", NEAR_YAML.encode, of_text),
    ("yaml_frontmatter_v1", "a.md", BUNDLE.encode, of_text),
]
