"""Spend: what calls of models cost, and what is left of today's budgets."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import click

from burnish import answers
from burnish.answers import read
from burnish.commands.show import short, when
from burnish.commands.verbs import data_option, gateway, json_option, verb
from burnish.failure import GATEWAY_EXITS, Failure
from burnish.parameters import TOUCHPOINT_ID
from burnish.printer import answer, print_json, print_table


def add_to(group: click.Group) -> None:
    """Register the verb."""

    @verb(
        group,
        "spend",
        example="burnish spend\nburnish spend --touchpoint support.intent --days 30\nburnish spend --calls 20 --json",
        exits=GATEWAY_EXITS,
    )
    @click.option("--touchpoint", type=TOUCHPOINT_ID, metavar="ID", help="Only of this one.")
    @click.option("--days", type=click.IntRange(1, 92), default=7, show_default=True, help="UTC days, today included.")
    @click.option("--calls", type=click.IntRange(0, 500), default=0, help="The last calls that could cost money, too.")
    @data_option
    @json_option
    def spend(touchpoint: str | None, days: int, calls: int, data: Path, as_json: bool) -> None:
        """Show what calls of models cost, by day, touchpoint and model, and what is left of today's budgets.

        A call that is in flight, or whose end was never learnt, counts at the most that it can cost; so much stands
        under "at most".
        """
        with gateway(data) as api:
            found = read(api.get("/spending", touchpoint_id=touchpoint, days=days, calls=calls), answers.AllSpending)
        if as_json:
            print_json(found)
            return
        print_table(
            ["budget of", "used today", "left", "a day", "a day and touchpoint"],
            [
                [one["caller"], _usd(one["used"]), _usd(one["left"]), _usd(one["per_day"]),
                 _usd(one["per_touchpoint_day"])]
                for one in found["budgets"]
            ],
        )  # fmt: skip
        answer()
        print_table(
            ["day", "touchpoint", "for", "model", "calls", "tokens in", "out", "USD", "at most"],
            [
                [one["day"], one["touchpoint_id"], one["caller"], _model(one), one["calls"], one["input_tokens"],
                 one["output_tokens"], _usd(one["usd"]), _usd(one["open_usd"]) if one["open_calls"] else "–"]
                for one in found["days"]
            ],
            empty="no model was asked in these days",
        )  # fmt: skip
        if calls:
            answer()
            print_table(
                ["call", "begun", "touchpoint", "for", "model", "tokens in", "out", "USD", "error"],
                [
                    [short(one["call_id"]), when(one["started_at"]), one["touchpoint_id"], one["caller"], _model(one),
                     _or_dash(one["input_tokens"]), _or_dash(one["output_tokens"]), _usd(one["usd"]),
                     one["error"] or ("–" if one["finished_at"] else "no end is known")]
                    for one in found["calls"]
                ],
                empty="no call could cost money",
            )  # fmt: skip


def _model(one: Mapping[str, Any]) -> str:
    return f"{one['provider']}/{one['model']}"


def _or_dash(value: object) -> object:
    return "–" if value is None else value


def _usd(amount: str | None) -> str:
    """An amount without zeros at its end, and with two digits at least."""
    if amount is None:
        return "–"
    try:
        rounded = format(Decimal(amount).quantize(Decimal("0.000001")), "f").rstrip("0")
    except InvalidOperation as error:
        raise Failure("the gateway's answer cannot be used: an amount of USD is no number") from error
    whole, _, rest = rounded.partition(".")
    return f"{whole}.{rest:0<2}"
