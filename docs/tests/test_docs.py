"""The pages say what is true: links lead somewhere, commands exist, variables and metrics are those of the code."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import click
import pytest
from pydantic_settings import BaseSettings

from libs.llm.settings import ProviderSettings
from libs.service_kit.settings import KitSettings

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = {"node_modules", "dist", "build"}
CODE = ("apps", "burnish", "libs", "services", "bench", "docs/tests", "examples", "conftest.py", "tests")
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part in SKIPPED for part in path.relative_to(ROOT).parts)
)

LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\(([^()\s]+)(?:\s+\"[^\"]*\")?\)|(?:src|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^(?P<mark>```+)(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=mark)\s*$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$", re.MULTILINE)
VARIABLE = re.compile(r"BURNISH_[A-Z0-9_]+(?:<[A-Z]+>)?")
METRIC = re.compile(r"\"(burnish_[a-z0-9_]+)\"")
INLINE_COMMAND = re.compile(r"`(burnish [a-z][^`…]*)`")
SHELL = re.compile(r" (?:[|>&]|2>|#) ?")
MACHINE_PATH = re.compile(r"(?<![\w.<>/:])/(?:home|Users|root|tmp|work|opt|var|mnt|srv)/[\w.-]+")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return FENCE.sub("", text_of(page))


def anchors(page: Path) -> set[str]:
    """The ids that GitHub gives to headings."""
    found: set[str] = set()
    for heading in HEADING.findall(prose(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"))
    return found


def code_files() -> Iterator[Path]:
    for name in CODE:
        path = ROOT / name
        yield from path.rglob("*.py") if path.is_dir() else filter(Path.is_file, [path])


def code_text(*, with_tests: bool = True) -> str:
    return "\n".join(
        path.read_text(encoding="utf-8")
        for path in code_files()
        if path != Path(__file__) and (with_tests or "tests" not in path.parts)
    )


# --- links ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for pair in LINK.findall(prose(page)):
        link = pair[0] or pair[1]
        if re.match(r"[a-z][a-z0-9+.-]*:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.is_relative_to(ROOT) or not target.exists():
            broken.append(link)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{link} (no such heading)")
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_path_of_a_machine(page: Path) -> None:
    allowed = {"/var/lib/burnish"}
    assert [path for path in MACHINE_PATH.findall(text_of(page)) if path not in allowed] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "adr"
    decisions = sorted(path.name for path in folder.glob("[0-9]*.md"))
    linked = re.findall(r"\]\((\d{4}-[^)]+\.md)\)", text_of(folder / "README.md"))
    assert linked == decisions
    for name in decisions:
        page = text_of(folder / name)
        assert page.startswith(f"# {name[:4]} "), f"{name} begins with its number"
        for part in ("Status: ", "\n## Context\n", "\n## What was ", "\n## Decision\n", "\n## Consequences\n"):
            assert part in page, f"{name} has no {part.strip()!r}"


def test_every_service_has_a_page_that_the_readme_links() -> None:
    services = sorted(path.parent.name for path in (ROOT / "services").glob("*/app.py"))
    readme = text_of(ROOT / "README.md")
    assert [name for name in services if f"](services/{name}/README.md)" not in readme] == []


# --- commands ---------------------------------------------------------------------------------------------


def commands() -> Iterator[tuple[str, str]]:
    """(page, command line) of every `burnish …` in a console block or in backquotes."""
    for page in PAGES:
        for block in FENCE.finditer(text_of(page)):
            if block["language"] == "console":
                for line in block["body"].splitlines():
                    if line.startswith("$ burnish "):
                        yield name_of(page), SHELL.split(line.removeprefix("$ "))[0].rstrip()
        for line in INLINE_COMMAND.findall(prose(page)):
            yield name_of(page), line


def resolved(words: list[str]) -> str | None:
    """What is wrong with a command line, if anything; its values are not looked at."""
    command: click.Command = importlib.import_module("burnish.cli").main
    context = click.Context(command, info_name="burnish")
    while isinstance(command, click.Group):
        if not words:
            return None
        if words[0].startswith("-"):
            return None if words[0] in ("--help", "--version") else f"{context.command_path} has no {words[0]}"
        found = command.get_command(context, words[0])
        if found is None:
            return f"{context.command_path} has no verb {words[0]!r}"
        command, words = found, words[1:]
        context = click.Context(command, info_name=command.name, parent=context)
    return wrong_use(command, context, words)


def wrong_use(command: click.Command, context: click.Context, words: list[str]) -> str | None:
    if words == ["--help"] or not words:
        return None
    try:
        values, rest, _ = command.make_parser(context).parse_args(list(words))
    except click.UsageError as error:
        return f"{context.command_path}: {error.format_message()}"
    missing = [
        parameter.name
        for parameter in command.params
        if isinstance(parameter, click.Argument)
        and parameter.required
        and not is_given(values.get(str(parameter.name)))
    ]
    if rest or missing:
        return f"{context.command_path}: {'too many' if rest else 'missing'} arguments: {rest or missing}"
    return None


def test_the_commands_of_the_pages_exist() -> None:
    found = list(commands())
    assert len(found) > 20
    wrong = [
        f"{page}: {line}: {problem}"
        for page, line in found
        if "<" not in line and (problem := resolved(shlex.split(line)[1:]))
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "line", ["burnish nonsense", "burnish migrate --nonsense", "burnish run scanner normaliser", "burnish --nonsense"]
)
def test_the_check_of_commands_finds_mistakes(line: str) -> None:
    assert resolved(shlex.split(line)[1:])


def is_given(value: object) -> bool:
    """Click fills what was left out with None, an empty tuple, or a sentinel of its own."""
    return value not in (None, ()) and not isinstance(value, Enum)


# --- variables --------------------------------------------------------------------------------------------


def documented_variables() -> set[str]:
    return {name for page in PAGES for name in VARIABLE.findall(text_of(page)) if not name.endswith("_")}


def settings_classes() -> dict[str, type[KitSettings]]:
    found = {"kit": KitSettings}
    for path in sorted((ROOT / "services").glob("*/settings.py")):
        module = importlib.import_module(f"services.{path.parent.name}.settings")
        found[path.parent.name] = module.Settings
    return found


def settings_variables() -> set[str]:
    classes: list[type[BaseSettings]] = [*settings_classes().values(), ProviderSettings]
    return {f"BURNISH_{field.upper()}" for settings in classes for field in settings.model_fields}


def test_documented_variables_exist() -> None:
    code = code_text()
    known = settings_variables()
    unknown = []
    for name in sorted(documented_variables() - known):
        stem = name.split("<")[0]
        if stem not in code:
            unknown.append(name)
    assert unknown == []


def test_every_setting_is_documented() -> None:
    page = set(VARIABLE.findall(text_of(ROOT / "docs" / "guides" / "configuration.md")))
    assert sorted(settings_variables() - page) == []


# --- metrics and logs -------------------------------------------------------------------------------------


def test_the_table_of_metrics_is_that_of_the_code() -> None:
    declared = {
        name
        for text in [code_text(with_tests=False)]
        for name in re.findall(r"(?:Counter|Gauge|Histogram)\(\s*\"(burnish_[a-z0-9_]+)\"", text)
    }
    page = text_of(ROOT / "docs" / "guides" / "operations.md")
    listed = set(re.findall(r"^\| `(burnish_[a-z0-9_]+)`", page, re.MULTILINE))
    assert listed == declared


def test_the_log_events_of_the_table_are_said() -> None:
    page = text_of(ROOT / "docs" / "guides" / "operations.md").partition("\n## Logs\n")[2].partition("\n## ")[0]
    names = {
        name
        for row in re.findall(r"^\| (`[a-z_]+\.[^|]+)\|", page, re.MULTILINE)
        for name in re.findall(r"`([a-z_.]+)`", row)
    }
    code = code_text(with_tests=False)
    assert len(names) > 10
    assert sorted(name for name in names if f'"{name}"' not in code) == []
