"""What the demo runs on: a prompt, production traffic with the right labels, and a gold standard in two splits."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from libs.contracts.evaluations import Case
from libs.files import UnreadableFile, read_text
from libs.llm import parse_labels

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "support_desk"
TRAFFIC_LIMIT = 2_000
DEV_PER_LABEL = 10
MAX_TEXT = 10_000
MAX_BYTES = 100_000_000


class DatasetError(Exception):
    """The data cannot be used; the text names the file, the line and what would be right."""


@dataclass(frozen=True)
class Labelled:
    """One input and the label that is right for it."""

    text: str
    label: str


@dataclass(frozen=True)
class Dataset:
    """Everything the demo needs. No text of `traffic` or of the dev split is in the test split."""

    name: str
    touchpoint_id: str
    prompt_path: str
    prompt: str
    traffic: tuple[Labelled, ...]
    cases: tuple[Case, ...]

    @property
    def gold(self) -> int:
        """How many cases the test split has."""
        return sum(case.split == "test" for case in self.cases)


def built_in(folder: Path = EXAMPLE) -> Dataset:
    """The example of the repository: a support desk's intents."""
    prompt = (folder / "prompts" / "intent.md").read_text()
    traffic = _read_csv(folder / "data" / "traffic.csv")
    cases = tuple(
        Case.model_validate_json(line) for line in (folder / "data" / "gold.jsonl").read_text().splitlines() if line
    )
    return _checked(Dataset("support desk", "support.intent", "prompts/intent.md", prompt, tuple(traffic), cases))


def from_folder(folder: Path, *, seed: int = 7) -> Dataset:
    """Any folder with `train.csv` and `test.csv` of the columns `text,category`.

    Up to 2,000 rows of train are production traffic, up to ten more a label are the dev split, test is the test
    split. The first prompt knows the names of the labels and nothing else.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder} is not a folder; name one that holds train.csv and test.csv")
    train, test = _read_csv(folder / "train.csv"), _read_csv(folder / "test.csv")
    labels = sorted({row.label for row in test})
    unknown = sorted({row.label for row in train} - set(labels))
    if unknown:
        raise DatasetError(f"{folder / 'train.csv'}: label {unknown[0]!r} is not in test.csv, so it cannot be measured")
    if len(labels) < 2:
        raise DatasetError(f"{folder / 'test.csv'}: at least two different labels are needed, found {len(labels)}")
    gold_texts = {_normal(row.text) for row in test}
    usable = [row for row in _distinct(train) if _normal(row.text) not in gold_texts]
    traffic, dev = _split(usable, random.Random(seed))
    cases = [Case(case_id=f"dev-{n}", input=row.text, expected=row.label, split="dev") for n, row in enumerate(dev)]
    cases += [Case(case_id=f"test-{n}", input=row.text, expected=row.label, split="test") for n, row in enumerate(test)]
    name = folder.resolve().name
    prompt = _names_only(name, labels)
    return _checked(Dataset(name, f"{_slug(name)}.intent", "prompts/intent.md", prompt, tuple(traffic), tuple(cases)))


def _split(rows: Sequence[Labelled], rng: random.Random) -> tuple[list[Labelled], list[Labelled]]:
    """Traffic and dev: dev takes its share of every label first, so that no label is without."""
    by_label: dict[str, list[Labelled]] = defaultdict(list)
    for row in rng.sample(list(rows), len(rows)):
        by_label[row.label].append(row)
    dev = [row for some in by_label.values() for row in some[: min(DEV_PER_LABEL, len(some) // 4)]]
    taken = set(dev)
    rest = [row for row in rows if row not in taken]
    return rng.sample(rest, min(TRAFFIC_LIMIT, len(rest))), dev


def _names_only(name: str, labels: Iterable[str]) -> str:
    sections = "\n".join(f"### {label}\nA message about {_human(label)}.\n" for label in labels)
    return (
        f"---\nname: {_slug(name)}-intent\ndescription: Assigns one intent label to a message.\n---\n\n"
        f"# Intent of a message\n\nRead the message and answer with exactly one of the labels below.\n\n"
        f"## Labels\n\n{sections}"
    )


def _checked(dataset: Dataset) -> Dataset:
    labels = {spec.name for spec in parse_labels(dataset.prompt)}
    used: Mapping[str, Iterable[str]] = {
        "the traffic": (row.label for row in dataset.traffic),
        "the gold standard": (case.expected for case in dataset.cases),
    }
    for where, found in used.items():
        missing = sorted(set(found) - labels)
        if missing:
            raise DatasetError(f"{where} uses the label {missing[0]!r}, which the prompt does not name")
    if not dataset.traffic:
        raise DatasetError("there is no production traffic: train.csv has no row that is not also in test.csv")
    return dataset


def _read_csv(path: Path) -> list[Labelled]:
    try:
        text = read_text(path, MAX_BYTES, encoding="utf-8-sig")
        return list(_rows(path, csv.DictReader(io.StringIO(text, newline=""))))
    except UnreadableFile as error:
        if error.absent:
            raise DatasetError(f"{path} is not there; a dataset is a folder with train.csv and test.csv") from error
        raise DatasetError(str(error)) from error
    except csv.Error as error:
        raise DatasetError(f"{path}: not readable as CSV ({error})") from error


def _rows(path: Path, reader: csv.DictReader[str]) -> Iterable[Labelled]:
    columns = reader.fieldnames or []
    missing = [name for name in ("text", "category") if name not in columns]
    if missing:
        found = ", ".join(columns) or "none"
        raise DatasetError(f"{path}: the column {missing[0]!r} is missing; expected text,category, found {found}")
    empty = True
    for row in reader:
        text, label = (row["text"] or "").strip(), (row["category"] or "").strip()
        if not text or not label:
            column = "text" if not text else "category"
            raise DatasetError(f"{path}, line {reader.line_num}: {column} is empty")
        if len(text) > MAX_TEXT:
            raise DatasetError(f"{path}, line {reader.line_num}: text has {len(text)} characters, at most {MAX_TEXT}")
        empty = False
        yield Labelled(" ".join(text.split()), label)
    if empty:
        raise DatasetError(f"{path}: there is no row below the header")


def _distinct(rows: Iterable[Labelled]) -> list[Labelled]:
    return list({_normal(row.text): row for row in rows}.values())


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _human(label: str) -> str:
    return label.replace("_", " ").replace("-", " ").strip("?").lower()


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-") or "dataset"


def suite_document(dataset: Dataset) -> dict[str, object]:
    """The body of `PUT …/suite`."""
    return {"cases": [json.loads(case.model_dump_json()) for case in dataset.cases]}
