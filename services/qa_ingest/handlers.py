"""What the Q&A library does with what it hears: events about objects, which are hints to look at them."""

from __future__ import annotations

from urllib.parse import unquote_plus

from libs.contracts.envelope import Event
from libs.contracts.events.bucket_store import ObjectNotifiedV1, StoreRecord
from services.qa_ingest import metrics
from services.qa_ingest.hints import Hints


async def on_objects_notified(events: list[Event[ObjectNotifiedV1]], hints: Hints) -> None:
    """Look at each object that a store tells of, once however often it is told of. What is nobody's is passed by.

    There is no inbox: following an object a second time finds it as it is known.
    """
    records = [record for event in events for record in event.data.records]
    named = dict.fromkeys(filter(None, map(_named, records)))
    for store, key in named:
        await hints.follow_meant(store, key)


def _named(record: StoreRecord) -> tuple[str, str] | None:
    """The bucket as its store calls it, and the key as it is; None for one that is no text."""
    try:
        return record.s3.bucket.name, unquote_plus(record.s3.object.key, errors="strict")
    except UnicodeDecodeError:
        metrics.HINTS.labels("store", "no_key").inc()
        return None
