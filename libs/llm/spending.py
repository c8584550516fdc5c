"""What a service may tell of its spending in one answer."""

from __future__ import annotations

from libs.contracts.queries.spending import MAX_DAY_ROWS
from libs.contracts.spending import DaySpending
from libs.service_kit.errors import Refused


def few_enough(days: tuple[DaySpending, ...]) -> tuple[DaySpending, ...]:
    """The same rows. Raises Refused 422 where there are more than an answer holds."""
    if len(days) > MAX_DAY_ROWS:
        detail = f"more than {MAX_DAY_ROWS:,} rows: ask for fewer days, or for one touchpoint"
        raise Refused("too_much", detail, status=422)
    return days
