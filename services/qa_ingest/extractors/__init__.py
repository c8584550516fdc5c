"""Ways to find questions and answers in files, one module each, registered as `burnish.extractors`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from libs.contracts.vocabulary import registered

if TYPE_CHECKING:
    from services.qa_ingest.domain.envelope import Extracted
    from services.qa_ingest.extractors.base import Extractor, File


def named(kind: str) -> Extractor:
    """The extractor of this name. Raises KeyError that names those there are."""
    from libs.registrations import load
    from services.qa_ingest.extractors.base import Extractor

    try:
        return load("extractors", kind, Extractor)  # type: ignore[type-abstract]
    except KeyError:
        raise KeyError(f"no extractor {kind!r}; there are {', '.join(registered('extractors'))}") from None


def run(kind: str, file: File) -> Extracted:
    """What the extractor of this name finds in a file. Raises `FileRejected`.

    A file that it cannot read and whose name has another ending is refused as of `other_kind`.
    """
    from services.qa_ingest.domain.blocks import Problem
    from services.qa_ingest.extractors.base import FileRejected

    extractor = named(kind)
    try:
        return extractor.extract(file)
    except FileRejected as refused:
        if file.name.casefold().endswith(tuple(extractor.suffixes)):
            raise
        told = f"{kind} reads files that end with {', '.join(extractor.suffixes)}; other kinds need another extractor"
        raise FileRejected("other_kind", [Problem(1, told), *refused.problems]) from refused


def fitting(name: str) -> list[Extractor]:
    """Every extractor that reads files of this name's ending, the strictest first."""
    found = [named(kind) for kind in registered("extractors")]
    fits = [each for each in found if not each.on_request and name.casefold().endswith(tuple(each.suffixes))]
    return sorted(fits, key=lambda each: ORDER.index(each.kind) if each.kind in ORDER else len(ORDER))


ORDER = ("yaml_frontmatter_v1", "pseudo_yaml_v1", "markdown_heading_v1", "docx_pattern_a", "docx_pattern_positional")
