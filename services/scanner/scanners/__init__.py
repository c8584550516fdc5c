"""The scanners by name, as they are registered in `pyproject.toml`, `burnish.scanners`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from libs.registrations import BadRegistration, classes_of
from services.scanner.scanners.base import BadOptions, Scanner, SignalSource, SourceOptions


def _registered() -> dict[str, type[Scanner]]:
    found = classes_of("scanners", Scanner)
    for name, scanner in found.items():
        if scanner.name != name:
            raise BadRegistration(f"burnish.scanners: {name} names a scanner that calls itself {scanner.name}")
    return found


_REGISTERED = _registered()
SCANNERS: dict[str, type[SignalSource[Any]]] = {
    name: scanner for name, scanner in _REGISTERED.items() if issubclass(scanner, SignalSource)
}
"""Those that read a table on a schedule."""
HEARD = frozenset(_REGISTERED.keys() - SCANNERS.keys())
"""Those that hear events."""


def scanner_for(name: str, options: Mapping[str, Any]) -> SignalSource[Any]:
    """The scanner of this name with these options. Raises BadOptions saying what would be right."""
    if name not in SCANNERS:
        raise BadOptions(f"there is no scanner {name!r} here; there are {', '.join(sorted(SCANNERS))}")
    return SCANNERS[name].configured(options)


__all__ = ["HEARD", "SCANNERS", "BadOptions", "Scanner", "SignalSource", "SourceOptions", "scanner_for"]
