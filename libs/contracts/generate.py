"""`python -m libs.contracts.generate`: writes the schemas, the AsyncAPI document and the event catalogue.

A schema that has landed is only overwritten by a compatible one; for anything else make a new class with the next
version in its type.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from libs.contracts import asyncapi, schemas

ROOT = Path(__file__).resolve().parents[2]
ASYNCAPI = ROOT / "docs" / "asyncapi.json"
CATALOGUE = ROOT / "docs" / "events.md"


def incompatible(folder: Path = schemas.FOLDER) -> dict[str, list[str]]:
    """File name → what breaks, for every landed schema that the code no longer keeps to."""
    fresh = schemas.generated()
    found: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*.json")):
        new = fresh.get(path.name)
        broken = ["the event is gone"] if new is None else schemas.breaks(json.loads(path.read_text()), json.loads(new))
        if broken:
            found[path.name] = broken
    return found


def main() -> int:
    """Write everything; exit code 1, and nothing written, when a landed schema would break."""
    broken = incompatible()
    for name, reasons in broken.items():
        for reason in reasons:
            print(f"{name}: {reason}", file=sys.stderr)
    if broken:
        print("nothing written: add a new event version instead of changing these", file=sys.stderr)
        return 1
    schemas.FOLDER.mkdir(exist_ok=True)
    for name, text in schemas.generated().items():
        (schemas.FOLDER / name).write_text(text)
    ASYNCAPI.write_text(asyncapi.asyncapi())
    CATALOGUE.write_text(asyncapi.catalogue())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
