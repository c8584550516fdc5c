"""The example is what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from examples.help_library.office import FILES
from services.qa_ingest.domain.bindings import Bindings
from services.qa_ingest.extractors import named
from services.qa_ingest.extractors.base import File, FileRejected

EXAMPLE = Path(__file__).parents[1]
EXPECTED = {
    "bundles/orders.md": (3, []),
    "bundles/subscription.md": (3, []),
    "faq/app.md": (3, ["### What happens to my calendars when I cancel?"]),
    "word/returns.docx": (3, ["4 Money Can a planner with my name on it be returned? to be decided"]),
    "sheets/shop.xlsx": (3, []),
}
FAULTS = [
    (7, "`scope_tag` is not a key; `scope_tags` is"),
    (8, "`publication_status` is one of draft, in_review, published, archived, not 'live'"),
    (17, "`question` has a ` #` in it, which YAML takes for a comment; put the text in quotes"),
    (18, "`valid_from` is a date (2024-01-31) or an ISO 8601 time, not '2026-02-30'"),
    (28, "`confidence` is a number from 0 to 1, not '120 %'"),
]


def bindings() -> dict[str, str]:
    document = YAML(typ="safe", pure=True).load((EXAMPLE / "buckets.yaml").read_text())
    found = Bindings.model_validate(document).buckets
    return {str(each.options["folder"]): each.extractor for each in found}


def test_every_file_gives_what_the_page_says() -> None:
    found = {}
    for folder, extractor in bindings().items():
        for path in sorted((EXAMPLE / folder).iterdir()):
            read = named(extractor).extract(File(path.name, path.read_bytes()))
            found[f"{folder}/{path.name}"] = (len(read.pairs), [reject.excerpt for reject in read.rejects])
    assert found == EXPECTED


def test_the_faulty_file_is_refused_with_each_mistake() -> None:
    path = EXAMPLE / "faults" / "payments.md"
    with pytest.raises(FileRejected) as refused:
        named("yaml_frontmatter_v1").extract(File(path.name, path.read_bytes()))
    assert [(problem.line, problem.message) for problem in refused.value.problems] == FAULTS


def test_the_office_files_are_those_that_the_script_writes() -> None:
    assert {path: path.read_bytes() for path in FILES} == FILES
