"""Ways to find questions and answers in files, one module each; `named` gives one, `KINDS` are their names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.qa_ingest.extractors.base import Extractor

_MODULES = {
    "yaml_frontmatter_v1": "yaml_frontmatter.YamlFrontmatter",
    "pseudo_yaml_v1": "pseudo_yaml.PseudoYaml",
    "markdown_heading_v1": "markdown_heading.MarkdownHeading",
}
KINDS = tuple(_MODULES)


def named(kind: str) -> Extractor:
    """The extractor of this name. Raises KeyError that names those there are."""
    if kind not in _MODULES:
        raise KeyError(f"no extractor {kind!r}; there are {', '.join(KINDS)}")
    module, name = _MODULES[kind].split(".")
    found: Extractor = getattr(import_module(f"services.qa_ingest.extractors.{module}"), name)()
    return found
