from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import psutil
import pytest

from burnish.data_folder import DataFolder, RunningNote
from burnish.errors import InstallationError
from burnish.installation import GATEWAY, SERVICE_NAMES, External, Installation
from libs.auth.keys import JwksKeys
from libs.auth.tokens import Verifier
from libs.embedded import FolderInUse, PortTaken


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("BURNISH_")]:
        monkeypatch.delenv(name)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def opened(data: Path, port: int | None = None) -> Installation:
    installation = Installation(data, external=External("postgresql://a:p@h:1/burnish", "nats://h:2"), port=port)
    installation.open()
    return installation


def note(pid: int, created: float) -> RunningNote:
    return RunningNote(pid, created, "http://127.0.0.1:1", "token", "nats://h:1", "postgresql://h/burnish")


def test_what_is_secret_is_for_its_owner_only(tmp_path: Path) -> None:
    installation = opened(tmp_path / "data")
    installation.folder.remember_running(note(1, 0))
    installation.folder.remember_ports({"registry": 1})
    for name in ("secrets.json", "signing_key.json", "installation.json", "ports.json"):
        assert mode(tmp_path / "data" / name) == 0o600, name
    assert mode(tmp_path / "data" / "logs") == 0o700
    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n"
    installation.close()


def test_secrets_are_made_once_and_differ_for_each_service(tmp_path: Path) -> None:
    first = DataFolder(tmp_path).secrets()
    assert DataFolder(tmp_path).secrets() == first
    made = [*first.roles.values(), *first.nats.values(), first.platform_reader]
    assert len(set(made)) == len(made)
    assert all(password.startswith("p-") for password in made)


def test_a_service_that_is_new_gets_its_passwords(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    first = folder.secrets()
    kept = json.loads((tmp_path / "secrets.json").read_text())
    del kept["roles"]["scanner"], kept["nats"]["scanner"]
    (tmp_path / "secrets.json").write_text(json.dumps(kept))
    whole = folder.secrets()
    assert whole.roles["scanner"] != first.roles["scanner"]
    assert whole.roles["registry"] == first.roles["registry"]
    assert DataFolder(tmp_path).secrets() == whole


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"roles": 1, "other": 2}'])
def test_damaged_secrets_are_named_and_never_replaced(tmp_path: Path, text: str) -> None:
    (tmp_path / "secrets.json").write_text(text)
    with pytest.raises(InstallationError, match=r"secrets\.json is damaged"):
        DataFolder(tmp_path).secrets()
    assert (tmp_path / "secrets.json").read_text() == text


def test_a_note_of_a_process_that_is_gone_is_no_installation(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    assert folder.running() is None
    here = psutil.Process()
    folder.remember_running(note(here.pid, here.create_time()))
    assert folder.running() is not None
    folder.remember_running(note(here.pid, here.create_time() - 60))
    assert folder.running() is None
    (tmp_path / "installation.json").write_text('{"of": "another version"}')
    assert folder.running() is None


def test_two_cannot_have_one_folder(tmp_path: Path) -> None:
    first = opened(tmp_path)
    with pytest.raises(FolderInUse, match="in use by this process"):
        opened(tmp_path)
    first.close()
    opened(tmp_path).close()


def test_a_taken_port_is_named_before_anything_is_made(tmp_path: Path) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} "):
            opened(tmp_path / "data", port=port)
    assert not (tmp_path / "data").exists()


def test_ports_differ_and_stay_the_same(tmp_path: Path) -> None:
    first = opened(tmp_path)
    ports = {name: first.port_of(name) for name in (*SERVICE_NAMES, "postgres", "nats")}
    assert len(set(ports.values())) == len(ports)
    first.folder.remember_ports(ports)
    first.close()
    again = opened(tmp_path)
    assert {name: again.port_of(name) for name in ports} == ports
    again.close()


def test_a_service_knows_its_own_passwords_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_ADMIN_DSN", "postgresql://root:toor@h/burnish")
    monkeypatch.setenv("BURNISH_NATS_PASSWORD_REGISTRY", "p-other")
    monkeypatch.setenv("BURNISH_TOKEN", "t")
    monkeypatch.setenv("PGPASSWORD", "x")
    monkeypatch.setenv("BURNISH_LOG_LEVEL", "DEBUG")
    installation = opened(tmp_path)
    environment = installation.service_environment("scanner")
    installation.close()
    assert environment["BURNISH_DATABASE_URL"].startswith("postgresql://burnish_scanner:p-")
    assert environment["BURNISH_DATABASE_URL"].endswith("@h:1/burnish")
    assert environment["BURNISH_LOG_LEVEL"] == "DEBUG"
    told = " ".join(environment.values())
    secrets = installation.secrets
    others = [name for name in SERVICE_NAMES if name != "scanner"]
    assert not any(secrets.roles[name] in told or secrets.nats[name] in told for name in others)
    assert not {"BURNISH_ADMIN_DSN", "BURNISH_NATS_PASSWORD_REGISTRY", "BURNISH_TOKEN", "PGPASSWORD"} & set(environment)


def test_only_services_that_ask_models_get_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("BURNISH_ANTHROPIC_API_KEY", "BURNISH_OPENAI_API_KEY_FILE")
    for name in names:
        monkeypatch.setenv(name, "sk-secret")
    installation = opened(tmp_path)
    have = {service: set(installation.service_environment(service)) & set(names) for service in SERVICE_NAMES}
    installation.close()
    assert {service for service, keys in have.items() if keys} == {"proposal", "ab_runner", "agents", "qa_ingest"}
    assert have["proposal"] == set(names)


def test_passwords_of_servers_elsewhere_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURNISH_ROLE_PASSWORD_SCANNER", "role-password")
    monkeypatch.setenv("BURNISH_NATS_PASSWORD_SCANNER", "p-nats")
    installation = opened(tmp_path)
    environment = installation.service_environment("scanner")
    installation.close()
    assert "burnish_scanner:role-password@" in environment["BURNISH_DATABASE_URL"]
    assert environment["BURNISH_NATS_PASSWORD"] == "p-nats"


async def test_the_gateway_can_verify_our_tokens(tmp_path: Path) -> None:
    installation = opened(tmp_path)
    environment = installation.service_environment(GATEWAY)
    verifier = Verifier(JwksKeys(environment["BURNISH_JWT_JWKS"]), "burnish", "burnish")
    caller = await verifier.caller(f"Bearer {installation.token(subject='ann')}")
    installation.close()
    assert (caller.subject, caller.roles, caller.workspaces) == ("ann", frozenset({"admin"}), None)
