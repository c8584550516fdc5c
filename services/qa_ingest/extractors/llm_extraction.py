"""`llm_extraction`: pairs that a model finds in prose. It runs on request only, under a cap: see `prose.py`."""

from __future__ import annotations

from collections.abc import Sequence

from services.qa_ingest.domain.blocks import Problem, normalise
from services.qa_ingest.domain.envelope import Extracted
from services.qa_ingest.domain.prose import KIND, MAX_BYTES, VERSION
from services.qa_ingest.extractors.base import Extractor, File, FileRejected
from services.qa_ingest.extractors.text import decode


class LlmExtraction(Extractor):
    """See the module. What it would do by itself costs money, so by itself it does nothing."""

    kind = KIND
    version = VERSION
    suffixes: Sequence[str] = (".md", ".markdown", ".txt", ".text")
    on_request = True

    def extract(self, file: File) -> Extracted:
        """Always raises `FileRejected`: nobody has said what it may cost."""
        told = "it asks a model, and needs a cap: `burnish qa ingest FILE --extractor llm_extraction --max-usd USD`"
        raise FileRejected("on_request_only", [Problem(1, told)])


def prose_of(file: File) -> str:
    """The text of a file that a model may read. Raises `FileRejected`."""
    if not file.name.casefold().endswith(tuple(LLM_EXTRACTION.suffixes)):
        told = f"{KIND} reads text: files that end with {', '.join(LLM_EXTRACTION.suffixes)}"
        raise FileRejected("other_kind", [Problem(1, told)])
    if len(file.content) > MAX_BYTES:
        told = f"it has {len(file.content):,} bytes; {KIND} reads at most {MAX_BYTES:,}: cut it into files"
        raise FileRejected("too_large", [Problem(1, told)])
    text = normalise(decode(file.content))
    if not text.strip():
        raise FileRejected("no_text", [Problem(1, "there is no text in it")])
    return text


LLM_EXTRACTION = LlmExtraction()
