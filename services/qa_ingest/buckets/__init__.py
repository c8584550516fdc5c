"""Where documents come from: one small interface, a module a kind, registered as `burnish.buckets`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from services.qa_ingest.buckets.base import Bucket, BucketKind, BucketOptions, OwnBus
    from services.qa_ingest.domain.bindings import Binding


def kind_of(binding: Binding) -> BucketKind[BucketOptions]:
    """The kind that a binding names. Raises `ValueError` that names those there are."""
    from libs.contracts.vocabulary import registered
    from libs.registrations import load
    from services.qa_ingest.buckets.base import BucketKind

    try:
        return load("buckets", binding.kind, BucketKind)
    except KeyError:
        names = ", ".join(registered("buckets"))
        raise ValueError(f"bucket {binding.bucket}: kind: there is no {binding.kind!r}; there are {names}") from None


def opened(binding: Binding, bus: OwnBus) -> Bucket:
    """The bucket of a binding. Raises `ValueError` that names the bucket and the field, never a value."""
    try:
        return kind_of(binding).opened(binding.bucket, binding.options, bus)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"bucket {binding.bucket}: {place or binding.kind}: {first['msg']}") from error
