"""From what an extractor found to what an author may keep: envelopes as entries of a canonical bundle."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from libs.contracts.library import ExportedPair
from services.qa_ingest.domain.bundle import Entry
from services.qa_ingest.domain.bundle_writer import own_key
from services.qa_ingest.domain.envelope import Envelope, Source

# What an entry and an envelope do not hold in the same way.
_NAMED_OTHERWISE = {"id", "alternate_phrasings", "metadata"}
SAME = tuple(each.name for each in fields(Entry) if each.name not in _NAMED_OTHERWISE)


def entry_of(envelope: Envelope) -> Entry:
    """The entry that says the same. What the format has no key for is kept in keys of its own."""
    return Entry(
        id=envelope.id_token,
        alternate_phrasings=tuple(dict.fromkeys(variant.question for variant in envelope.variants)),
        metadata=_metadata(envelope),
        **{name: getattr(envelope, name) for name in SAME},
    )


def entry_of_pair(pair: ExportedPair) -> Entry:
    """The entry of a pair that was taken out of the library."""
    said = {each.name: getattr(pair, each.name) for each in fields(Entry) if each.name != "sources"}
    return Entry(**said, sources=tuple(Source(**each.model_dump()) for each in pair.sources))


def _metadata(envelope: Envelope) -> dict[str, Any]:
    kept: dict[str, Any] = {_own(name): value for name, value in envelope.metadata.items()}
    told = [
        variant.model_dump(exclude_none=True)
        for variant in envelope.variants
        if variant.source is not None or variant.detail is not None
    ]
    more = {
        "context_variants": told,
        "cited": list(envelope.citations),
        "called_duplicates": list(envelope.duplicates),
        "section_path": list(envelope.place.section_path),
        "tracked_changes_resolved": "yes" if envelope.revised else "",
    }
    return {**kept, **{name: value for name, value in more.items() if value}}


def _own(name: str) -> str:
    """A name that is no key of the format, and is not mistaken for one."""
    return own_key("_".join(name.split()) or "unnamed")
