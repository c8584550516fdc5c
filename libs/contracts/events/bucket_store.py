"""What an S3-compatible store says about the objects in it, in the form that AWS gave such messages."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, StringConstraints

from libs.contracts.envelope import ForeignData, Frozen
from libs.contracts.text import STORABLE
from libs.contracts.vocabulary import Name

EncodedKey = Annotated[str, StringConstraints(min_length=1, max_length=8_000), STORABLE]
"""A key of at most 1,024 bytes, each of which may stand as `%XX`."""


class _Told(Frozen):
    model_config = ConfigDict(populate_by_name=True)


class StoredBucket(_Told):
    """The bucket as its store names it."""

    name: Name


class StoredObject(_Told):
    """The object. `key` is encoded as in a form of the web: `+` is a space, and a plus is `%2B`."""

    key: EncodedKey


class StoredPlace(_Told):
    """Which object of which bucket."""

    bucket: StoredBucket
    object: StoredObject


class StoreRecord(_Told):
    """Something happened to an object. What it was is not asked: the object is looked at as it is now."""

    s3: StoredPlace


class ObjectNotifiedV1(ForeignData):
    """Objects of an S3-compatible store may have changed. A hint, as the store sends it: late, twice, or never."""

    type: ClassVar[str] = "bucket.object.notified.v1"
    model_config = ConfigDict(populate_by_name=True)

    records: tuple[StoreRecord, ...] = Field(default=(), alias="Records", max_length=1_000)
