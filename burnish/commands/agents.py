"""Agents: `agents list|show|lint|refine|save|revert|chat|catalog|flag`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from burnish.answers import Document, read
from burnish.answers_agents import (
    AgentAnswer,
    AgentRows,
    CatalogAnswer,
    Flag,
    Refined,
    RefinedAnswer,
    Talk,
    TurnEvent,
    Version,
    Versions,
    WholeAgent,
)
from burnish.commands.show import short, when
from burnish.commands.verbs import Group, data_option, gateway, json_option, verb
from burnish.failure import EXITS, FAILED, GATEWAY_EXITS, USAGE, Failure
from burnish.parameters import FILE, INTEGER, NAME, NEW_FILE, TEXT
from burnish.printer import answer, exact, plain, print_fields, print_json, print_table, remark
from libs.contracts.agents import BLOCKS

if TYPE_CHECKING:
    from burnish.client import Gateway

MAX_PACK_FILE = 4 * 1024 * 1024
REFINE_FLAG = "/v2/flags/rollout/ai_agent_refine"


def add_to(group: click.Group) -> None:
    """Register the verbs."""
    agents = Group("agents", help="Agents: look at their packs, refine them by conversation, save and revert them.")
    group.add_command(agents)
    _add_looking(agents)
    _add_refining(agents)
    _add_saving(agents)
    _add_setting_up(agents)


def _add_looking(agents: click.Group) -> None:
    @verb(agents, "list", example="burnish agents list", exits=GATEWAY_EXITS)
    @data_option
    @json_option
    def list_(data: Path, as_json: bool) -> None:
        """List the organisation's agents."""
        with gateway(data) as api:
            found = read(api.get("/v2/ai_agents", limit=500), AgentRows)
        if as_json:
            print_json(found)
            return
        rows = [
            (
                each["id"],
                each["name"],
                each["company_id"],
                each["capabilities"],
                each["lock_version"],
                when(each["updated_at"]),
            )
            for each in found["data"]
        ]
        print_table(("id", "name", "company", "capabilities", "version", "saved"), rows)

    @verb(
        agents,
        "show",
        example="burnish agents show AGENT > pack.json\nburnish agents show AGENT --versions",
        exits=GATEWAY_EXITS,
    )
    @click.argument("agent", type=NAME)
    @click.option("--versions", is_flag=True, help="Its history instead of its pack.")
    @data_option
    @json_option
    def show(agent: str, versions: bool, data: Path, as_json: bool) -> None:
        """Print an agent's pack, as `agents save` takes it, or its history."""
        with gateway(data) as api:
            if versions:
                _show_versions(read(api.get(f"{_at(agent)}/versions"), Versions)["data"], as_json)
                return
            found = _agent(api, agent)
        if as_json:
            print_json(found)
        else:
            remark(f"agent {plain(found['id'])} of {plain(found['company_id'])}, version {found['lock_version']}")
            exact(json.dumps(_pack(found), ensure_ascii=False, indent=2) + "\n")

    @verb(
        agents,
        "lint",
        example="burnish agents lint pack.json",
        exits={**EXITS, 0: "nothing is wrong with it", FAILED: "there are findings; they are listed"},
    )
    @click.argument("path", metavar="FILE", type=FILE)
    @json_option
    def lint(path: Path, as_json: bool) -> None:
        """Check a pack: what keeps it from doing what it says. Nothing is sent anywhere."""
        from services.agents.domain.lint import lint as findings_of
        from services.agents.domain.mapping import SkillPackBuilder

        findings = findings_of(SkillPackBuilder().build(_read_pack(path)))
        if as_json:
            print_json([{"code": each.code, "where": each.where, "message": each.message} for each in findings])
        elif findings:
            print_table(("code", "finding"), [(each.code, each.message) for each in findings])
        else:
            answer(f"{plain(path.name)}: nothing is wrong with it")
        raise SystemExit(FAILED if findings else 0)


def _show_versions(versions: Sequence[Version], as_json: bool) -> None:
    if as_json:
        print_json(list(versions))
        return
    rows = [
        (each["version"], each["action"], each["actor"], when(each["at"]), short(each["pack_sha256"]), _mark(each))
        for each in versions
    ]
    print_table(("version", "action", "by", "at", "pack", "from"), rows)


def _mark(version: Version) -> str:
    mark = version.get("refine")
    return f"refine {mark['turn_id']}, option {mark['option']}" if mark else ""


def _add_refining(agents: click.Group) -> None:
    @verb(
        agents,
        "refine",
        example='burnish agents refine AGENT "check my configuration for issues" --out mended.json',
        exits={**GATEWAY_EXITS, FAILED: "there is no option"},
    )
    @click.argument("agent", type=NAME)
    @click.argument("message", type=TEXT)
    @click.option("--pack", "pack_file", type=FILE, help="The pack to refine; else the stored one.")
    @click.option(
        "--option", "chosen", type=click.IntRange(1, 3), default=1, show_default=True, help="Which option --out writes."
    )
    @click.option("--out", type=NEW_FILE, help="Write an option's pack there; nothing is saved.")
    @data_option
    @json_option
    def refine(
        agent: str, message: str, pack_file: Path | None, chosen: int, out: Path | None, data: Path, as_json: bool
    ) -> None:
        """Say what is wrong with an agent; see up to three ways to mend it. Nothing is saved."""
        with gateway(data) as api:
            pack = _read_pack(pack_file) if pack_file else _pack(_agent(api, agent))
            body = {"user_message": message, "ai_agent": pack}
            refined = read(api.post(f"{_at(agent)}/refine", body), RefinedAnswer)["data"]
        options = refined["options"]
        if as_json:
            print_json(refined)
        else:
            _show_refined(pack, refined)
        if out is not None and options:
            if chosen > len(options):
                raise Failure(f"there is no option {chosen}", f"--option goes from 1 to {len(options)}", USAGE)
            out.write_text(json.dumps(options[chosen - 1]["updated_ai_agent"], ensure_ascii=False, indent=2) + "\n")
            remark(
                f"option {chosen} is in {plain(out)}; save it with `burnish agents save {plain(agent)} {plain(out)}`"
            )
        raise SystemExit(0 if options else FAILED)

    @verb(
        agents,
        "chat",
        example='burnish agents chat AGENT "hello" "cancel order" --pack mended.json',
        exits=GATEWAY_EXITS,
    )
    @click.argument("agent", type=NAME)
    @click.argument("messages", metavar="MESSAGE...", type=TEXT, nargs=-1, required=True)
    @click.option("--pack", "pack_file", type=FILE, help="Talk with this pack instead of the stored one.")
    @data_option
    @json_option
    def chat(agent: str, messages: Sequence[str], pack_file: Path | None, data: Path, as_json: bool) -> None:
        """Hold a conversation with the stored pack, or one that is not saved, on the engine."""
        body: dict[str, Any] = {"messages": list(messages)}
        if pack_file:
            body["ai_agent"] = _read_pack(pack_file)
        with gateway(data) as api:
            turns = read(api.post(f"{_at(agent)}/preview", body), Talk)["data"]["turns"]
        if as_json:
            print_json(turns)
            return
        for turn in turns:
            answer(f"> {plain(turn['message'])}")
            for event in turn["events"]:
                answer(f"  {event_line(event)}")


def event_line(event: TurnEvent) -> str:
    """One event of a conversation in a sentence."""
    skill, subject, text = plain(event["skill"]), plain(event["subject"]), plain(event["text"])
    told = {
        "replied": f"{skill}: {text}",
        "executed": f"{skill} did {subject}: {text}",
        "failed": f"{skill} could not do {subject}: {text}",
        "blocked": f"{skill} may not do {subject} yet: it waits for “{text}”",
        "fired": f"{skill} reached “{subject}”",
        "switched": f"{skill} hands over to {subject}",
        "completed": f"{skill} is done ({subject})",
        "handed_off": f"{skill} hands over to a person",
        "stuck": f"{skill} is stuck: {subject}",
    }
    return told.get(event["kind"], plain(event["kind"]))


def _show_refined(pack: Document, refined: Refined) -> None:
    from services.agents.domain.changes import changes

    for line in refined["reply"].splitlines():
        answer(plain(line))
    for number, option in enumerate(refined["options"], start=1):
        changed = changes(pack, _answered_pack(option["updated_ai_agent"]))
        answer()
        answer(f"Option {number}" + (" (recommended)" if number == 1 else ""))
        rows = [(each.type, each.label, _cut(each.current), _cut(each.new)) for each in changed]
        print_table(("", "field", "now", "then"), rows)
    for warning in refined["warnings"]:
        remark(plain(warning))


def _cut(value: str | None) -> str:
    text = plain(value or "")
    return text if len(text) <= 120 else f"{text[:119]}…"


def _add_saving(agents: click.Group) -> None:
    @verb(agents, "save", example="burnish agents save AGENT pack.json --version 3", exits=GATEWAY_EXITS)
    @click.argument("agent", type=NAME)
    @click.argument("path", metavar="FILE", type=FILE)
    @click.option("--version", type=INTEGER, help="The version that the pack was read at; else the one of now.")
    @data_option
    @json_option
    def save(agent: str, path: Path, version: int | None, data: Path, as_json: bool) -> None:
        """Save a pack: it is what the engine executes from now on. Blocks that the file does not have stay."""
        pack = _read_pack(path)
        with gateway(data) as api:
            read_at = version or _agent(api, agent)["lock_version"]
            saved = read(api.patch(_at(agent), {**pack, "lock_version": read_at}), AgentAnswer)["data"]
        _saved(saved, as_json)

    @verb(agents, "create", example="burnish agents create pack.json --company acme", exits=GATEWAY_EXITS)
    @click.argument("path", metavar="FILE", type=FILE)
    @click.option("--company", type=NAME, required=True, help="Whose agent it is.")
    @data_option
    @json_option
    def create(path: Path, company: str, data: Path, as_json: bool) -> None:
        """Make an agent of a pack."""
        with gateway(data) as api:
            made = api.post("/v2/ai_agents", {**_read_pack(path), "company_id": company})
        saved = read(made, AgentAnswer)["data"]
        _saved(saved, as_json)

    @verb(agents, "revert", example="burnish agents revert AGENT --to 2", exits=GATEWAY_EXITS)
    @click.argument("agent", type=NAME)
    @click.option("--to", "to_version", type=INTEGER, required=True, help="The version whose pack comes back.")
    @data_option
    @json_option
    def revert(agent: str, to_version: int, data: Path, as_json: bool) -> None:
        """Save the pack of an earlier version again, as a new one."""
        with gateway(data) as api:
            body = {"version": to_version, "lock_version": _agent(api, agent)["lock_version"]}
            saved = read(api.post(f"{_at(agent)}/revert", body), AgentAnswer)["data"]
        _saved(saved, as_json)


def _saved(agent: WholeAgent, as_json: bool) -> None:
    if as_json:
        print_json(agent)
    else:
        answer(f"agent {plain(agent['id'])} is at version {agent['lock_version']}")


def _add_setting_up(agents: click.Group) -> None:
    @verb(
        agents,
        "catalog",
        example="burnish agents catalog catalog.json\nburnish agents catalog --company acme",
        exits=GATEWAY_EXITS,
    )
    @click.argument("path", metavar="[FILE]", type=FILE, required=False)
    @click.option("--company", type=NAME, help="Show what this company's agents may use.")
    @data_option
    @json_option
    def catalog(path: Path | None, company: str | None, data: Path, as_json: bool) -> None:
        """Say, or show, which tools and which knowledge a company's agents may use."""
        if (path is None) == (company is None):
            raise Failure("name a file to apply, or --company to look at one", code=USAGE)
        with gateway(data) as api:
            if path is None:
                told = api.get("/v2/ai_agent_catalog", company_id=company)
            else:
                told = api.put("/v2/ai_agent_catalog", _read_object(path))
        found = read(told, CatalogAnswer)["data"]
        if as_json:
            print_json(found)
            return
        print_table(
            ("tool", "name", "description"), [(t["tool_id"], t["name"], t["description"]) for t in found["tools"]]
        )
        print_fields([("knowledge", ", ".join(each["kb_id"] for each in found["knowledge"]) or "–")])

    @verb(agents, "flag", example="burnish agents flag on", exits=GATEWAY_EXITS)
    @click.argument("state", type=click.Choice(["on", "off", "show"]), default="show")
    @data_option
    @json_option
    def flag(state: str, data: Path, as_json: bool) -> None:
        """Switch refining on or off, for everybody and at once."""
        with gateway(data) as api:
            answered = api.get(REFINE_FLAG) if state == "show" else api.put(REFINE_FLAG, {"enabled": state == "on"})
        told = read(answered, Flag)
        if as_json:
            print_json(told)
        else:
            answer(f"refining is {'on' if told['enabled'] else 'off'}")


def _at(agent: str) -> str:
    return f"/v2/ai_agents/{quote(agent, safe='')}"


def _agent(api: Gateway, agent: str) -> WholeAgent:
    return read(api.get(_at(agent)), AgentAnswer)["data"]


def _pack(agent: WholeAgent) -> Document:
    return _answered_pack({block: agent["parameters"][block] for block in BLOCKS if block in agent["parameters"]})


def _answered_pack(pack: Document) -> Document:
    from services.agents.domain.packs import MalformedPack, check_pack

    try:
        return check_pack(pack)
    except MalformedPack as error:
        raise Failure(f"the gateway's answer cannot be used: {plain(error)}") from error


def _read_pack(path: Path) -> dict[str, Any]:
    from services.agents.domain.packs import MalformedPack, check_pack

    pack = _read_object(path)
    unknown = sorted(set(pack) - set(BLOCKS))
    if unknown:
        raise Failure(
            f"{plain(path)}: {plain(unknown[0])} is no block of a pack", f"blocks are {', '.join(BLOCKS)}", USAGE
        )
    try:
        return check_pack(pack)
    except MalformedPack as error:
        raise Failure(f"{plain(path)}: {plain(error)}", code=USAGE) from error


def _read_object(path: Path) -> dict[str, Any]:
    from burnish.json_text import NotJson, read_json
    from libs.files import UnreadableFile, read_bytes

    try:
        found = read_json(read_bytes(path, MAX_PACK_FILE))
    except UnreadableFile as error:
        raise Failure(str(error), code=USAGE) from error
    except NotJson as error:
        raise Failure(f"{plain(path)}: {error}", code=USAGE) from error
    if not isinstance(found, dict):
        raise Failure(f"{plain(path)}: a JSON object was expected", code=USAGE)
    return found
