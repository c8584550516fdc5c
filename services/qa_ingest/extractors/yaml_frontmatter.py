"""`yaml_frontmatter_v1`: the canonical bundle, the one format that people are asked to write."""

from __future__ import annotations

from collections.abc import Sequence

from services.qa_ingest.domain.blocks import Problem, normalise
from services.qa_ingest.domain.bundle import Bundle, BundleRejected, Placed, parse
from services.qa_ingest.domain.conversion import SAME
from services.qa_ingest.domain.envelope import FRAGMENT, Envelope, Extracted, Notice, Place, Tally, Variant
from services.qa_ingest.extractors.base import Extractor, File, FileRejected


class YamlFrontmatter(Extractor):
    """See the module."""

    kind = "yaml_frontmatter_v1"
    version = "1"
    suffixes: Sequence[str] = (".md", ".markdown")

    def extract(self, file: File) -> Extracted:
        """Every block of the bundle; one mistake refuses the file."""
        text = _decoded(file.content)
        try:
            bundle = parse(text, workspace_id=file.workspace_id)
        except BundleRejected as error:
            raise FileRejected("bad_bundle", error.problems) from None
        return Extracted(
            extractor=self.kind,
            extractor_version=self.version,
            pairs=tuple(_envelope(ordinal, placed) for ordinal, placed in enumerate(bundle.entries)),
            notices=tuple(Notice(message=each.message, place=Place(line=each.line)) for each in bundle.warnings),
            losses=_tally(normalise(text), bundle).losses(),
        )


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        told = f"not UTF-8 (byte {error.start}); save the file as UTF-8"
        raise FileRejected("not_utf8", [Problem(line, told)]) from None


def _envelope(ordinal: int, placed: Placed) -> Envelope:
    entry = placed.entry
    return Envelope(
        ordinal=ordinal,
        place=Place(line=placed.line),
        id_token=entry.id,
        answer_text=entry.answer_standard,  # what is searched, and shown where only one answer has room
        variants=tuple(Variant(question=each) for each in entry.alternate_phrasings),
        fragment=len(entry.answer_standard) < FRAGMENT,
        metadata=dict(entry.metadata),
        **{name: getattr(entry, name) for name in SAME},
    )


def _tally(text: str, bundle: Bundle) -> Tally:
    lines = text.split("\n")
    sizes = [len(line) + 1 for line in lines]
    sizes[-1] -= 1  # no newline behind the last line
    tally = Tally(len(text))
    first = bundle.entries[0].first
    tally.rule("file_head", sum(sizes[:first]))
    for placed in bundle.entries:
        tally.pair(sum(sizes[placed.first : placed.end]))
    return tally


YAML_FRONTMATTER = YamlFrontmatter()
