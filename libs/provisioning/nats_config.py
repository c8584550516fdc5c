"""The NATS server configuration, generated from the topology: one account per service, nothing shared by default.

Only the account `BUS` has JetStream, beside an outsider's with streams apart, from which nothing leads to `BUS`. It
exports to each service, for that service alone: the subjects it says,
its own durables (INFO, MSG.NEXT, ACK), and nothing else. Queries are exported by the owner to those who ask, facts that
are overheard by whoever says them; one question, "keep this message that was given up", by every service to `BUS`.
The rules behind every line are in `docs/adr/0004-one-nats-account-per-service.md`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from libs.contracts.topology import (
    OUTSIDERS,
    SERVICES,
    Durable,
    Outsider,
    ServiceEntry,
    dead_letter_bury_subject,
    dead_letter_list_subject,
    dead_letter_replay_subject,
    dead_letter_subject,
)

BUS_ACCOUNT = "BUS"
ADMIN_USER = "bus_admin"
MAX_PAYLOAD = 4 * 1024 * 1024
RESPONSE_THRESHOLD = "30s"


def account_of(service: str) -> str:
    """The name of a service's account."""
    return service.upper()


def password_variable(user: str) -> str:
    """The environment variable from which the server reads a user's password (`p-` and hex)."""
    return f"BURNISH_NATS_PASSWORD_{user.upper()}"


def server_config(services: Sequence[ServiceEntry] = SERVICES) -> str:
    """The accounts and limits part of `nats-server.conf`. Ports and the store's folder are added where it runs."""
    accounts = [
        _bus_account(services),
        *(_service_account(entry, services) for entry in services),
        *(_outsider_account(outsider) for outsider in OUTSIDERS),
    ]
    lines = [
        "# Generated from libs/contracts/topology.py by `burnish topology --write`. Do not edit.",
        f"max_payload: {MAX_PAYLOAD}",
        "feature_flags { js_ack_fc_v2: false }",
        "accounts {",
        *(f"  {line}" for account in accounts for line in account),
        "}",
        "",
    ]
    return "\n".join(lines)


def _bus_account(services: Sequence[ServiceEntry]) -> list[str]:
    exports = [
        *(line for entry in services for line in _bus_exports(entry)),
        *(line for outsider in OUTSIDERS for line in _outsider_exports(outsider)),
    ]
    return [
        f"{BUS_ACCOUNT} {{",
        "  jetstream: enabled",
        f"  users: [ {{ user: {ADMIN_USER}, password: ${password_variable(ADMIN_USER)} }} ]",
        "  exports: [",
        *(f"    {line}" for line in exports),
        "  ]",
        "  imports: [",
        *(f"    {_import(account_of(entry.name), dead_letter_bury_subject(entry.name))}" for entry in services),
        "  ]",
        "}",
    ]


def _bus_exports(entry: ServiceEntry) -> list[str]:
    to = f"accounts: [{account_of(entry.name)}]"
    lines = [f"{{ service: {_quoted(subject)}, {to} }}" for subject in _says(entry)]
    for durable in entry.hears:
        lines += [
            f"{{ service: {_quoted(_info(durable))}, {to} }}",
            f"{{ service: {_quoted(_next(durable))}, {to}, response_type: stream, "
            f"response_threshold: {_quoted(RESPONSE_THRESHOLD)} }}",
            f"{{ service: {_quoted(_ack(durable))}, {to} }}",
        ]
    return lines


def _service_account(entry: ServiceEntry, services: Sequence[ServiceEntry]) -> list[str]:
    user = f"{{ user: {entry.name}, password: ${password_variable(entry.name)} }}"
    return [
        f"{account_of(entry.name)} {{",
        f"  users: [ {user} ]",
        "  exports: [",
        *(f"    {line}" for line in [*_query_exports(entry, services), *_overheard_exports(entry, services)]),
        "  ]",
        "  imports: [",
        *(f"    {line}" for line in _bus_imports(entry)),
        *(f"    {line}" for line in [*_query_imports(entry, services), *_overheard_imports(entry, services)]),
        "  ]",
        "}",
    ]


def _outsider_exports(outsider: Outsider) -> list[str]:
    to = f"accounts: [{account_of(outsider.name)}]"
    return [f"{{ service: {_quoted(event.type)}, {to} }}" for event in outsider.says]


def _outsider_account(outsider: Outsider) -> list[str]:
    """What it says becomes ours; what it keeps stays apart: a stream of its own could forge whatever we import."""
    user = f"{{ user: {outsider.name}, password: ${password_variable(outsider.name)} }}"
    assert not (outsider.says and outsider.own_streams)
    return [
        f"{account_of(outsider.name)} {{",
        *(["  jetstream: enabled"] if outsider.own_streams else []),
        f"  users: [ {user} ]",
        "  imports: [",
        *(f"    {_import(BUS_ACCOUNT, event.type)}" for event in outsider.says),
        "  ]",
        "}",
    ]


def _bus_imports(entry: ServiceEntry) -> list[str]:
    lines = [_import(BUS_ACCOUNT, subject) for subject in _says(entry)]
    for durable in entry.hears:
        # INFO and MSG.NEXT are renamed to the client's JetStream prefix: without it the account's own (absent)
        # JetStream answers first. ACK keeps its subject, since the message carries it.
        lines += [
            _import(BUS_ACCOUNT, _info(durable), to=_info(durable).replace("$JS.API", "bus")),
            _import(BUS_ACCOUNT, _next(durable), to=_next(durable).replace("$JS.API", "bus")),
            _import(BUS_ACCOUNT, _ack(durable)),
        ]
    return lines


def _query_exports(entry: ServiceEntry, services: Sequence[ServiceEntry]) -> list[str]:
    lines = [f"{{ service: {_quoted(dead_letter_bury_subject(entry.name))}, accounts: [{BUS_ACCOUNT}] }}"]
    for subject in _answers(entry):
        askers = [account_of(other.name) for other in services if subject in _asks(other, services)]
        if askers:
            lines.append(f"{{ service: {_quoted(subject)}, accounts: [{', '.join(askers)}] }}")
    return lines


def _query_imports(entry: ServiceEntry, services: Sequence[ServiceEntry]) -> list[str]:
    owners = {subject: other for other in services for subject in _answers(other)}
    wanted = _asks(entry, services)
    return [_import(account_of(owners[subject].name), subject) for subject in wanted if owners[subject] is not entry]


def _overheard_exports(entry: ServiceEntry, services: Sequence[ServiceEntry]) -> list[str]:
    """What others overhear, by whoever says it: what comes to `BUS` through an import is not passed on from there."""
    lines = []
    for event in entry.says:
        hearers = [account_of(other.name) for other in services if event in other.overhears]
        if hearers:
            lines.append(f"{{ stream: {_quoted(event.type)}, accounts: [{', '.join(hearers)}] }}")
    return lines


def _overheard_imports(entry: ServiceEntry, services: Sequence[ServiceEntry]) -> list[str]:
    return [
        f"{{ stream: {{ account: {account_of(other.name)}, subject: {_quoted(event.type)} }} }}"
        for event in entry.overhears
        for other in services
        if event in other.says
    ]


def _says(entry: ServiceEntry) -> list[str]:
    return [*(event.type for event in entry.says), dead_letter_subject(entry.name)]


def _answers(entry: ServiceEntry) -> list[str]:
    operations = [dead_letter_list_subject(entry.name), dead_letter_replay_subject(entry.name)]
    return [*(query.subject for query in entry.answers), *operations]


def _asks(entry: ServiceEntry, services: Sequence[ServiceEntry]) -> list[str]:
    operations = (
        [
            subject
            for other in services
            if other.name != entry.name
            for subject in (dead_letter_list_subject(other.name), dead_letter_replay_subject(other.name))
        ]
        if entry.manages_dead_letters
        else []
    )
    return [*(query.subject for query in entry.asks), *operations]


def _info(durable: Durable) -> str:
    return f"$JS.API.CONSUMER.INFO.{durable.stream}.{durable.name}"


def _next(durable: Durable) -> str:
    return f"$JS.API.CONSUMER.MSG.NEXT.{durable.stream}.{durable.name}"


def _ack(durable: Durable) -> str:
    return f"$JS.ACK.{durable.stream}.{durable.name}.>"


def _import(account: str, subject: str, *, to: str | None = None) -> str:
    renamed = f", to: {_quoted(to)}" if to else ""
    return f"{{ service: {{ account: {account}, subject: {_quoted(subject)} }}{renamed} }}"


def _quoted(text: str) -> str:
    return json.dumps(text)
