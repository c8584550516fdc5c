"""How much room the streams get, and how many replicas: settings of the installation, not of a service."""

from __future__ import annotations

from pydantic import ByteSize, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from pydantic_settings.exceptions import SettingsError as Unparsable

from libs.contracts.topology import STREAMS, Stream
from libs.provisioning.errors import SettingsError

MIB = 1024**2
SMALLEST = 8 * MIB
"""No stream is smaller: a message may have 4 MiB."""

DEFAULT_STORE = 512 * MIB
MOST_STORE = 1 << 50


class BusSettings(BaseSettings):
    """From environment variables with the prefix `BURNISH_`. Small by default; a server of its own gets more."""

    model_config = SettingsConfigDict(env_prefix="BURNISH_", extra="ignore", frozen=True)

    bus_store: ByteSize = Field(default=ByteSize(DEFAULT_STORE), ge=64 * MIB, le=MOST_STORE)
    bus_streams: dict[str, ByteSize] = Field(default={}, description="sizes of single streams, by name")
    bus_replicas: int = Field(default=1, ge=1, le=5)

    @field_validator("bus_streams")
    @classmethod
    def _are_streams(cls, sizes: dict[str, ByteSize]) -> dict[str, ByteSize]:
        names = [stream.name for stream in STREAMS]
        for name, size in sizes.items():
            if name not in names:
                raise ValueError(f"there is no stream {name!r}; there are {', '.join(names)}")
            if not SMALLEST <= size <= MOST_STORE:
                raise ValueError(f"{name} gets {size.human_readable()}; 8MiB to 1PiB are possible")
        return sizes

    @field_validator("bus_replicas")
    @classmethod
    def _have_a_majority(cls, replicas: int) -> int:
        if replicas % 2 == 0:
            raise ValueError("1, 3 or 5: an even number survives no more failures than one less")
        return replicas

    @classmethod
    def from_environment(cls) -> BusSettings:
        """As the environment says. Raises `SettingsError` naming the variable."""
        try:
            return cls()
        except ValidationError as error:
            wrong = [f"BURNISH_{str(one['loc'][0]).upper()}: {one['msg']}" for one in error.errors()]
            raise SettingsError(
                "\n".join(wrong), 'e.g. BURNISH_BUS_STORE=2GiB, or BURNISH_BUS_STREAMS=\'{"QA":"1GiB"}\''
            ) from None
        except Unparsable:
            raise SettingsError(
                "BURNISH_BUS_STREAMS is not JSON", 'e.g. BURNISH_BUS_STREAMS=\'{"REFINEMENT": "8GiB"}\''
            ) from None

    def size_of(self, stream: Stream) -> int:
        """The most bytes that a stream may hold on each of its replicas."""
        given = self.bus_streams.get(stream.name)
        return int(given) if given is not None else max(SMALLEST, int(self.bus_store) * stream.percent // 100)

    def total(self) -> int:
        """What all streams may hold together on one server that has a replica of each."""
        return sum(self.size_of(stream) for stream in STREAMS)
