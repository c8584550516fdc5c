"""`ledger head` and `ledger verify --head`: what is kept elsewhere, whom it is trusted from, what today's ledger is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from burnish.cli import main
from burnish.data_folder import DataFolder
from burnish.tests.conftest import Scripted
from libs.auth.statements import StatementKey
from libs.contracts.versions import LedgerHead

KEY, OTHER = StatementKey.new(), StatementKey.new()
NOW = datetime(2025, 6, 1, tzinfo=UTC)
INTACT = {
    "intact": True, "entries": 9, "head_sha256": "a" * 64, "broken_at": None, "problem": "", "table": "", "row": "",
    "columns": [], "next": None,
}  # fmt: skip


def head(key: StatementKey | None = KEY, **more: Any) -> LedgerHead:
    public = key.public if key else None
    made = LedgerHead(seq=7, entries=7, entry_sha256="b" * 64, at=NOW, signed_at=NOW, public_key=public)
    signed = made.model_copy(update={"signature": key.sign(made.statement())}) if key else made
    return signed.model_copy(update=more)


def shown(found: LedgerHead) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(found.model_dump_json())
    return document


def invoke(data: Path, *words: str) -> tuple[int, str, str]:
    outcome = CliRunner().invoke(main, ["ledger", *words, "--data", str(data)])
    return outcome.exit_code, outcome.stdout, outcome.stderr


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "head.json"
    path.write_text(json.dumps(shown(head())))
    return path


def test_a_head_is_printed_to_be_kept(data: Path, server: Scripted) -> None:
    server.body = shown(head())
    code, out, _ = invoke(data, "head", "--json")
    assert code == 0
    assert LedgerHead.model_validate_json(out) == head()
    code, out, _ = invoke(data, "head")
    assert (code, "b" * 64 in out, KEY.public in out) == (0, True, True)


def test_a_head_without_a_signature_says_so(data: Path, server: Scripted) -> None:
    server.body = shown(head(None))
    code, _, err = invoke(data, "head", "--json")
    assert (code, "BURNISH_LEDGER_KEY" in err) == (0, True)


def test_the_ledger_goes_through_the_head_that_was_kept(data: Path, server: Scripted, kept: Path) -> None:
    server.body = INTACT
    code, _, err = invoke(data, "verify", "--head", str(kept), "--public-key", KEY.public)
    assert (code, "through the head at entry 7" in err) == (0, True)
    assert server.seen[-1][1] == f"/api/refinement/ledger/verify?head_seq=7&head_sha256={'b' * 64}"


def test_a_verification_in_pages_is_asked_to_its_end(data: Path, server: Scripted) -> None:
    server.answers = [(200, {**INTACT, "next": "chain/5/x"}), (200, {**INTACT, "next": "texts/9/x"}), (200, INTACT)]
    assert invoke(data, "verify")[0] == 0
    assert [path.partition("?")[2] for _, path, _ in server.seen] == [
        "",
        "cursor=chain%2F5%2Fx",
        "cursor=texts%2F9%2Fx",
    ]


def test_what_is_wrong_is_named_and_ends_with_1(data: Path, server: Scripted) -> None:
    wrong = {
        **INTACT,
        "intact": False,
        "broken_at": 4,
        "problem": "prompt_versions x: gone",
        "table": "prompt_versions",
    }
    server.body = wrong
    code, out, err = invoke(data, "verify", "--json")
    assert (code, json.loads(out)) == (1, wrong)
    assert "entry 4: prompt_versions x: gone" in err


@pytest.mark.parametrize(
    ("found", "key", "told"),
    [
        (head(), OTHER.public, "was signed with"),
        (head(OTHER), KEY.public, "was signed with"),
        (head(seq=6), KEY.public, "signature is wrong"),
        (head(entry_sha256="c" * 64), KEY.public, "signature is wrong"),
        (head(signature=OTHER.sign(head().statement())), KEY.public, "signature is wrong"),
        (head(signature="ü"), KEY.public, "signature is wrong"),
        (head(signature=None), KEY.public, "not signed"),
        (head(None), KEY.public, "not signed"),
    ],
    ids=range(8),  # keys are made anew in each process, and every process must name a test the same
)
def test_a_head_that_nobody_trusted_signed_is_refused_before_anything_is_asked(
    data: Path, server: Scripted, kept: Path, found: LedgerHead, key: str, told: str
) -> None:
    kept.write_text(json.dumps(shown(found)))
    server.body = INTACT
    code, _, err = invoke(data, "verify", "--head", str(kept), "--public-key", key)
    assert (code, server.seen) == (1, [])
    assert told in err


def test_a_head_without_a_signature_is_taken_when_that_is_said(data: Path, server: Scripted, kept: Path) -> None:
    kept.write_text(json.dumps(shown(head(None))))
    server.body = INTACT
    assert invoke(data, "verify", "--head", str(kept), "--public-key", KEY.public, "--unsigned")[0] == 0
    kept.write_text(json.dumps(shown(head(seq=6))))
    assert invoke(data, "verify", "--head", str(kept), "--public-key", KEY.public, "--unsigned")[0] == 1


def test_the_key_is_the_installations_own_or_the_one_that_the_gateway_names(
    data: Path, server: Scripted, kept: Path
) -> None:
    server.answers = [(200, shown(head())), (200, INTACT)]
    code, _, err = invoke(data, "verify", "--head", str(kept))
    assert (code, "--public-key" in err) == (0, True)
    DataFolder(data).ledger_key()
    server.body = INTACT
    code, _, err = invoke(data, "verify", "--head", str(kept))
    assert (code, "was signed with" in err) == (1, True)
    made = StatementKey.load(DataFolder(data).ledger_key())
    kept.write_text(json.dumps(shown(head(made))))
    assert invoke(data, "verify", "--head", str(kept))[0] == 0


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", "5", "null", "[" * 5_000, '{"seq": 1e400}', "\x00", '{"seq": "x"}', "x" * 70_000,
     json.dumps({**shown(head()), "seq": -1}), json.dumps({**shown(head()), "at": "0001-01-01T00:00:00+10:00"}),
     json.dumps({**shown(head()), "format": "another"}), json.dumps({**shown(head()), "seq": 2**70})],
    ids=range(14),
)  # fmt: skip
def test_a_file_that_is_no_head_is_told_by_its_name(data: Path, server: Scripted, kept: Path, text: str) -> None:
    kept.write_text(text)
    code, _, err = invoke(data, "verify", "--head", str(kept))
    assert (code, server.seen) == (2, [])
    assert "head.json" in err


@pytest.mark.parametrize("key", ["", "x", "no/such/file", "!" * 43, "/dev/zero", "-----BEGIN PUBLIC KEY-----"])
def test_what_is_no_public_key_is_told(data: Path, server: Scripted, kept: Path, key: str) -> None:
    code, _, err = invoke(data, "verify", "--head", str(kept), "--public-key", key)
    assert (code, server.seen, "--public-key" in err) == (2, [], True)


def test_a_key_without_a_head_is_wrong_usage(data: Path, server: Scripted) -> None:
    assert invoke(data, "verify", "--public-key", KEY.public)[0] == 2
    assert server.seen == []


def test_the_installation_makes_a_key_once(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    path = folder.ledger_key()
    public = StatementKey.load(path).public
    assert folder.public_ledger_key.read_text().strip() == public
    assert StatementKey.load(folder.ledger_key()).public == public
