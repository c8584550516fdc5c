"""Ways to find questions and answers in files, one module each; `named` gives one, `KINDS` are their names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.qa_ingest.extractors.base import Extractor

# Where each is made, and with what; imported only when it is asked for.
_MAKERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "yaml_frontmatter_v1": ("yaml_frontmatter", "YamlFrontmatter", ()),
    "pseudo_yaml_v1": ("pseudo_yaml", "PseudoYaml", ()),
    "markdown_heading_v1": ("markdown_heading", "MarkdownHeading", ()),
    "docx_pattern_a": ("docx", "DocxTables", ("docx_pattern_a",)),
    "docx_pattern_b": ("docx", "DocxTables", ("docx_pattern_b",)),
    "docx_pattern_c": ("docx", "DocxTables", ("docx_pattern_c",)),
    "docx_pattern_positional": ("docx", "DocxTables", ("docx_pattern_positional",)),
}
KINDS = tuple(_MAKERS)


def named(kind: str) -> Extractor:
    """The extractor of this name. Raises KeyError that names those there are."""
    if kind not in _MAKERS:
        raise KeyError(f"no extractor {kind!r}; there are {', '.join(KINDS)}")
    module, name, arguments = _MAKERS[kind]
    found: Extractor = getattr(import_module(f"services.qa_ingest.extractors.{module}"), name)(*arguments)
    return found
