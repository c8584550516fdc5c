"""Settings of the Q&A library, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from libs.files import read_text
from libs.llm import Budget
from libs.service_kit.settings import KitSettings
from services.qa_ingest.buckets.base import OwnBus
from services.qa_ingest.domain.bindings import Binding, Bindings
from services.qa_ingest.domain.tuning import Tunings

MAX_FILE_BYTES = 1_000_000
TUNING = Path(__file__).with_name("tuning.json")


class Settings(KitSettings):
    """Which buckets feed the library, and which embedder is used."""

    qa_buckets: Path | None = Field(default=None, description="a YAML file that binds buckets to workspaces")
    qa_folder: Path | None = Field(default=None, description="a folder that feeds the workspace `default`")
    qa_look_every_s: float = Field(default=2.0, gt=0, description="how often the folder is listed")
    qa_nats_password: SecretStr = Field(
        default=SecretStr(""), description="of the NATS user `qa_buckets`, in whose account object stores are"
    )
    qa_object_locks: bool = Field(default=True, description="off only as the control of a fault drill")
    qa_embed_every_s: float = Field(default=2.0, gt=0, description="how often is looked for questions without a vector")
    qa_review_grace_days: int = Field(
        default=14, ge=0, le=365, description="so long after it is due a review is overdue, in days"
    )
    qa_embedder: str = Field(default="static", description="static, sentence-transformers or openai")

    qa_model: str = Field(
        default="",
        pattern=r"^([a-z_]+/\S+)?$",
        max_length=200,
        description="provider/name of the model of llm_extraction; else the tier `analysis`, else offline, by rule",
    )
    qa_usd_per_day: Decimal = Field(default=Decimal(5), ge=0, description="what llm_extraction may cost a day (UTC)")
    qa_call_timeout_s: float = Field(default=120.0, gt=0, description="patience with one call of it")

    @property
    def model_budget(self) -> Budget:
        """The limits of the model pool: one paid call at a time. Each run has a cap of its own besides."""
        return Budget(self.qa_usd_per_day, self.qa_usd_per_day, in_flight_s=self.qa_call_timeout_s)

    @property
    def own_bus(self) -> OwnBus:
        """Where object stores of our own bus are."""
        return OwnBus(self.nats_url, password=self.qa_nats_password)

    qa_tuning: Path | None = Field(default=None, description="a JSON file of weights and thresholds of search")

    def tunings(self) -> Tunings:
        """How lanes are weighed and matches judged. Raises `ValueError` that names the file and the field."""
        return fitted() if self.qa_tuning is None else _tunings(self.qa_tuning)

    def bindings(self) -> Bindings:
        """Every bucket. Raises `ValueError` that names the file and the field."""
        told: list[Any] = []
        if self.qa_folder is not None:
            told.append(_of_folder(self.qa_folder, self.qa_look_every_s))
        if self.qa_buckets is not None:
            told += _read(self.qa_buckets).buckets
        return Bindings(buckets=tuple(told))


def _of_folder(folder: Path, look_every_s: float) -> Binding:
    return Binding(
        bucket="folder",
        folder=folder,
        workspace="default",
        curate_as_pair=True,
        look_every_s=look_every_s,
    )


@cache
def fitted() -> Tunings:
    """What was fitted on public data: `python -m bench.search_quality --fit` writes it."""
    return Tunings.model_validate_json(TUNING.read_bytes())


def _tunings(path: Path) -> Tunings:
    try:
        return Tunings.model_validate_json(read_text(path, MAX_FILE_BYTES))
    except ValidationError as error:
        raise _misfit(path, error) from error


def _misfit(path: Path, error: ValidationError) -> ValueError:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return ValueError(f"{path}: {place or 'the file'}: {first['msg']}")


def _beside(path: Path, binding: Binding) -> Binding:
    """A folder that is not named from the root is beside the file that names it."""
    folder = binding.options.get("folder")
    if not isinstance(folder, str):
        return binding
    return binding.model_copy(update={"folder": str(path.absolute().parent / folder)})


def _read(path: Path) -> Bindings:
    try:
        document = YAML(typ="safe", pure=True).load(read_text(path, MAX_FILE_BYTES))
        bindings = Bindings.model_validate(document)
        return Bindings(buckets=tuple(_beside(path, each) for each in bindings.buckets))
    except YAMLError as error:
        raise ValueError(f"{path}: not YAML: {str(error).splitlines()[0]}") from error
    except ValidationError as error:
        raise _misfit(path, error) from error
