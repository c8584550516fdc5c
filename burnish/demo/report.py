"""The demo's result: one JSON document, and the same as a report for a terminal."""

from __future__ import annotations

import re

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from burnish.demo.dataset import Dataset
from burnish.demo.loop import Json, Outcome

TOP_PATTERNS = 12
DIFF_LINES = 24
LONG_HEX = re.compile(r"\b[0-9a-f]{40,64}\b")
VERDICT_STYLE = {"better": "green", "worse": "red", "undecided": "yellow", "not_worse": "cyan"}


def document(dataset: Dataset, outcome: Outcome) -> Json:
    """Everything that happened, in the numbers of the API."""
    return {
        "dataset": {
            "name": dataset.name,
            "touchpoint_id": dataset.touchpoint_id,
            "production_inputs": outcome.production.answers,
            "wrong_answers": outcome.production.wrong,
            "gold_cases": dataset.gold,
        },
        "signals_stored": int(outcome.counts["stored"]),
        "patterns": [_pattern(pattern) for pattern in outcome.patterns],
        "proposals": [_proposal(p, outcome.runs.get(p["proposal_id"], {})) for p in outcome.proposals],
        "activated": outcome.activated,
        "rolled_back": outcome.rolled_back,
        "ledger": outcome.ledger,
        "elapsed_s": round(outcome.elapsed_s, 2),
    }


def _pattern(pattern: Json) -> Json:
    return {
        "id": pattern["pattern_id"],
        "title": pattern["title"],
        "strategy": pattern["strategy"],
        "state": pattern["state"],
        "evidence": pattern["evidence_count"],
        "actors": pattern["actors"],
        "score": pattern["score"],
    }


def _proposal(proposal: Json, run: Json) -> Json:
    return {
        "id": proposal["proposal_id"],
        "pattern_id": proposal["pattern_id"],
        "title": proposal["pattern_title"],
        "state": proposal["state"],
        "hunks": proposal["hunks"],
        "diff": proposal["diff"],
        "rationale": proposal["rationale"],
        "verdict": run.get("verdict"),
        "reason": run.get("reason", ""),
        "metrics": {metric["name"]: _metric(metric) for metric in run.get("metrics", ())},
        "flips": {side: len(run.get("flips", {}).get(side, ())) for side in ("gained", "lost")},
        "n": run.get("n", 0),
    }


def _metric(metric: Json) -> Json:
    return {key: metric[key] for key in ("a", "b", "delta", "ci95", "ci_verdict", "effect_size", "method")}


def show(console: Console, result: Json) -> None:
    """Print the document as a report."""
    console.print()
    console.print(_summary(result))
    console.print(_patterns(result["patterns"]))
    for proposal in sorted(result["proposals"], key=_by_lower_bound, reverse=True):
        console.print(_proposal_panel(proposal))
    console.print(_ledger(result["ledger"]))
    console.print(_ending(result))


def _by_lower_bound(proposal: Json) -> float:
    return max((m["ci95"][0] for m in proposal["metrics"].values()), default=-1.0)


def _summary(result: Json) -> RenderableType:
    data = result["dataset"]
    return Text(
        f"{data['name']}: {data['production_inputs']} production inputs, {data['wrong_answers']} answered wrongly · "
        f"{result['signals_stored']} signals stored · {len(result['patterns'])} patterns · "
        f"{len(result['proposals'])} proposals measured on {data['gold_cases']} gold cases · "
        f"{result['elapsed_s']:.1f} s",
        style="bold",
    )


def _patterns(patterns: list[Json]) -> RenderableType:
    table = Table(
        title=f"Patterns (the top {min(TOP_PATTERNS, len(patterns))} of {len(patterns)})", title_justify="left"
    )
    for name, justify in (("score", "right"), ("evidence", "right"), ("actors", "right"), ("strategy", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("title", overflow="fold")
    for pattern in patterns[:TOP_PATTERNS]:
        table.add_row(
            f"{pattern['score']:.1f}",
            str(pattern["evidence"]),
            str(pattern["actors"]),
            pattern["strategy"],
            Text(pattern["title"]),
        )
    return table


def _proposal_panel(proposal: Json) -> RenderableType:
    verdict = proposal["verdict"] or "not measured"
    diff = "\n".join(proposal["diff"].splitlines()[:DIFF_LINES])
    parts: list[RenderableType] = [
        Syntax(diff, "diff", background_color="default", word_wrap=True),
        _metrics(proposal["metrics"]),
    ]
    flips = proposal["flips"]
    parts.append(Text(f"{flips['gained']} cases gained, {flips['lost']} lost of {proposal['n']}. {proposal['reason']}"))
    title = Text.assemble((f" {verdict} ", f"bold {VERDICT_STYLE.get(verdict, 'white')}"), proposal["title"] + " ")
    return Panel(Group(*parts), title=title, title_align="left", border_style=VERDICT_STYLE.get(verdict, "dim"))


def _metrics(metrics: Json) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    for name in ("metric", "A live", "B new", "delta", "95 % interval", "it decides by", "effect"):
        table.add_column(name, justify="left" if name == "metric" else "right", no_wrap=True)
    for name, metric in metrics.items():
        size = metric["effect_size"]
        table.add_row(
            name,
            f"{metric['a']:.3f}",
            f"{metric['b']:.3f}",
            f"{metric['delta']:+.3f}",
            _interval(metric["ci95"]),
            _interval(metric["ci_verdict"] or metric["ci95"]),
            "–" if size is None else f"{size:+.3f}",
        )
    return table


def _interval(bounds: list[float]) -> str:
    return f"{bounds[0]:+.3f}…{bounds[1]:+.3f}"


def _ledger(entries: list[Json]) -> RenderableType:
    table = Table(title="Ledger", title_justify="left")
    for name in ("#", "what", "version", "by", "why"):
        table.add_column(name, overflow="fold")
    for entry in entries:
        why = entry["detail"].get("confirmed_by") or entry["reason"]
        version = _short(entry["version_ref"] or "")
        table.add_row(str(entry["seq"]), entry["kind"], version, entry["by"], Text(_short(str(why))))
    return table


def _ending(result: Json) -> RenderableType:
    if result["activated"] is None:
        return Text("No proposal was better with its lower bound above zero: nothing was activated.", style="yellow")
    activated, back = result["activated"], result["rolled_back"]
    told = (
        f"Activated {activated['version_ref']} (confirmed by {activated['confirmed_by']}), "
        f"then rolled back to {back['to']}."
    )
    return Text(_short(told), style="green")


def _short(text: str) -> str:
    """Hashes and commits cut to the twelve characters that people compare."""
    return LONG_HEX.sub(lambda found: found[0][:12], text)
