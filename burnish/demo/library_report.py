"""What the library's demo found, as a report for a terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from burnish.demo.loop import Json

STRENGTH_STYLE = {"exact": "bold green", "strong": "green", "fair": "yellow", "weak": "dim"}


def show(console: Console, result: Json) -> None:
    """Print the demo's document as a report."""
    documents = result["documents"]
    pairs, left_out = sum(each["pairs"] for each in documents), sum(len(each["rejects"]) for each in documents)
    console.print()
    told = f"{len(documents)} files · {pairs} questions with answers · {left_out} left out by name"
    console.print(Text(f"{told} · {result['elapsed_s']:.1f} s", style="bold"))
    console.print(_documents(documents))
    console.print(_refused(result["refused"]))
    for panel in _asked(result["asked"]):
        console.print(panel)
    console.print(_edited(result["edited"]))


def _documents(documents: list[Json]) -> RenderableType:
    table = Table(title="What came of the files", title_justify="left")
    for name, justify in (("folder", "left"), ("file", "left"), ("read by", "left"), ("pairs", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_column("left out, and why", overflow="fold")
    for each in documents:
        why = "\n".join(f"{reject['excerpt'][:70]}: {reject['message']}" for reject in each["rejects"])
        table.add_row(each["bucket"], Text(each["object_key"]), each["extractor"], str(each["pairs"]), Text(why))
    return table


def _refused(document: Json) -> RenderableType:
    lines = [
        Text.assemble((f"line {problem['line']:>3}  ", "dim"), problem["message"]) for problem in document["problems"]
    ]
    lines.append(Text("None of it is in the library: a file is taken whole, or not at all.", style="dim"))
    return Panel(Group(*lines), title=f" refused: {document['object_key']} ", title_align="left", border_style="red")


def _asked(asked: Json) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False)
    for name in ("match", "similarity", "question in the library"):
        table.add_column(name, justify="right" if name == "similarity" else "left", overflow="fold")
    for hit in asked["results"][:3]:
        table.add_row(*_hit(hit))
    pair = asked["pair"]
    answer = Panel(Markdown(pair["answer_standard"]), title=Text(f" {pair['question_text']} "), title_align="left")
    unknown = asked["unknown"]
    best = unknown["results"][0]["match_strength"] if unknown["results"] else None
    nothing = "nothing, which is an answer" if best is None else f"nothing better than a {best} match"
    return [
        Panel(
            Group(table, answer), title=_title("q_a_search", asked["query"]), title_align="left", border_style="cyan"
        ),
        Panel(Text(nothing), title=_title("q_a_search", unknown["query"]), title_align="left", border_style="cyan"),
    ]


def _title(tool: str, query: str) -> Text:
    return Text.assemble(f" an agent asks over MCP: {tool} ", (query, "bold"), " ")


def _hit(hit: Json) -> tuple[Text, str, Text]:
    strength = hit["match_strength"]
    similarity = "–" if hit["similarity"] is None else f"{hit['similarity']:.2f}"
    return Text(strength, style=STRENGTH_STYLE[strength]), similarity, Text(hit["question_text"])


def _edited(edited: Json) -> RenderableType:
    change = Text.assemble(
        f"{edited['file']}: ", (edited["before"], "red"), " → ", (edited["after"], "green"), style="default"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("version", "what", "by", "why"):
        table.add_column(name, overflow="fold")
    for version in reversed(edited["pair"]["history"]):
        what = version["change_type"].replace("_", " ")
        table.add_row(str(version["version_number"]), what, version["changed_by"], Text(version["change_reason"]))
    told = Text("The pair itself is unchanged: files propose, people decide.", style="dim")
    title = Text(f" its history: {edited['pair']['question_text']} ")
    return Panel(Group(change, table, told), title=title, title_align="left", border_style="green")
