"""EvalRegression: a baseline that slipped. It is heard as an event; there is no table to read."""

from __future__ import annotations

from typing import ClassVar

from services.scanner.domain import EVAL_REGRESSION
from services.scanner.scanners.base import Scanner


class EvalRegression(Scanner):
    """Named by a touchpoint like the others, and never due: `handlers.on_evals_regressed` makes its signals."""

    name: ClassVar[str] = EVAL_REGRESSION
