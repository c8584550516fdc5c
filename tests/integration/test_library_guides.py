"""The guides of the library, done as they are written: their files, their commands, in their order."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from services.qa_ingest.domain.bundle_keys import FIELDS
from tests.integration.guides import ROOT, Desk, Guide, running

AUTHORS = Guide("library-authors.md")
OPERATORS = Guide("library-operations.md")
pytestmark = pytest.mark.timeout(400)


def test_the_table_of_keys_is_that_of_the_format() -> None:
    page = (ROOT / "docs" / "guides" / AUTHORS.name).read_text()
    table = page.partition("### The keys\n")[2].partition("\nBelow")[0]
    named = {key for row in table.splitlines()[2:] for key in re.findall(r"`([a-z_]+)`", row.split("|")[1:2][0] or "")}
    assert named == set(FIELDS)


def test_the_authors_guide_can_be_followed(tmp_path: Path) -> None:
    template, lint, convert, lint_again, documents, search, ingest, report, show = AUTHORS.commands()
    bundle, faulty, faq = AUTHORS.blocks("markdown")
    reader = Desk(tmp_path)
    for name, text in (("exports.md", bundle), ("faulty.md", faulty), ("faq.md", faq)):
        (tmp_path / name).write_text(text)
    reader.sh(template)
    assert reader.sh(lint) == "exports.md: 2 pairs\nanswers.md: 2 pairs\n"
    with pytest.raises(AssertionError) as refused:
        reader.sh("burnish qa lint faulty.md")
    assert AUTHORS.blocks("text")[0] in str(refused.value)
    reader.sh(f"{convert} 2> told.txt")
    assert "Can I have two accounts?" in (tmp_path / "told.txt").read_text()
    assert reader.sh(lint_again).endswith("accounts.md: 1 pair\n")
    with running(reader, "burnish up"):
        reader.sh(AUTHORS.blocks("sh")[0].strip())
        reader.until(documents, "accounts.md")
        listed = reader.until(documents, "faulty.md")
        assert "rejected" in listed
        reader.until(documents, "exports.md")
        assert "Which formats can I export to?" in reader.until(search, "Which formats")
        assert "accounts.md: ingested, 1 pair, 0 left out" in reader.sh(ingest)
        found = {one["object_key"]: one["document_id"] for one in json.loads(reader.sh(f"{documents} --json"))}
        reader.names["DOCUMENT_ID"] = found["faulty.md"]
        assert "line 5: error: `scope_tag` is not a key; `scope_tags` is" in reader.sh(report)
        (hit, *_) = json.loads(reader.sh(f"{search} --json"))["results"]
        reader.names["PAIR_ID"] = hit["id"]
        assert "1  " in reader.sh(show)
        (tmp_path / ".burnish" / "library" / "exports.md").write_text(bundle.replace("CSV and JSON", "CSV and XML"))
        assert "source_changed" in reader.until(show, "source_changed")
        assert "CSV and JSON" in reader.sh(show)


def test_the_operators_guide_can_be_followed(tmp_path: Path) -> None:
    up, documents, search, extractions, token, show, export, check, take = OPERATORS.commands()
    reader = Desk(tmp_path)
    reader.sh(OPERATORS.blocks("sh")[0].strip())
    limits, mail = OPERATORS.blocks("markdown")
    (rows,) = OPERATORS.blocks("json")
    files = {
        "buckets.yaml": OPERATORS.blocks("yaml")[0],
        "handbook/limits.md": limits,
        "faq/mail.md": mail,
        "content_items.jsonl": rows,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    setting, _, command = up.partition(" ")
    name, _, value = setting.partition("=")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(name, value.strip('"').replace("$PWD", str(tmp_path)))
        with running(reader, command):
            reader.until(documents, "limits.md")
            reader.until(documents, "mail.md")
            assert "How large may an attachment be?" in reader.until(search, "How large")
            assert "Can I send a mail later?" in reader.until(extractions, "mail later")
            (hit, *_) = json.loads(reader.sh(f"{search} --json"))["results"]
            reader.names["PAIR_ID"] = hit["id"]
            assert "published, version 1" in reader.sh(f"{show} --workspace Support")
            assert reader.sh(export) == "backup/limits.md: 1 pair\n"
            told = json.loads(reader.sh("burnish qa export --workspace Support --json"))
            assert (told["pairs"], told["sensitive"]) == (1, 1)
            patch.setenv("BURNISH_TOKEN", reader.sh(token).strip())
            told = json.loads(reader.sh("burnish qa export --workspace Support --sensitive --json"))
            assert (told["pairs"], told["sensitive"]) == (2, 0)
            patch.delenv("BURNISH_TOKEN")
            assert "1 pairs, all of them readable" in reader.sh(check)
            assert "1 pairs imported, 0 there already" in reader.sh(take)
            assert "0 pairs imported, 1 there already" in reader.sh(take)
            question = 'burnish qa search "are messages encrypted on the disk" --workspace Support'
            assert "Do you encrypt mail at rest?" in reader.sh(question)
            reader.until("burnish qa show PAIR_ID --workspace Support".replace("PAIR_ID", hit["id"]), "version 1")
