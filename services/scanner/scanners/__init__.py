"""The scanners by name. To add one: a module beside these, and its line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.scanner.scanners.base import BadOptions, SignalSource, SourceOptions
from services.scanner.scanners.low_confidence import LowConfidenceScanner
from services.scanner.scanners.si_flag import SiFlagScanner

SCANNERS: dict[str, type[SignalSource[Any]]] = {
    SiFlagScanner.name: SiFlagScanner,
    LowConfidenceScanner.name: LowConfidenceScanner,
}


def scanner_for(name: str, options: Mapping[str, Any]) -> SignalSource[Any]:
    """The scanner of this name with these options. Raises BadOptions saying what would be right."""
    if name not in SCANNERS:
        raise BadOptions(f"there is no scanner {name!r} here; there are {', '.join(sorted(SCANNERS))}")
    return SCANNERS[name].configured(options)


__all__ = ["SCANNERS", "BadOptions", "SignalSource", "SourceOptions", "scanner_for"]
