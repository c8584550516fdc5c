"""`burnish qa`: bundles are checked without a server."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from burnish.cli import main
from services.qa_ingest.domain.bundle_keys import FIELDS


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(main, list(arguments))
    return done.exit_code, done.stdout, done.stderr


def test_the_template_is_a_bundle(tmp_path: Path) -> None:
    code, text, _ = invoke("qa", "template")
    assert code == 0
    file = tmp_path / "answers.md"
    file.write_text(text)
    assert invoke("qa", "lint", str(file)) == (0, f"{file}: 2 pairs\n", "")
    assert {"question", "id", "sources", "review_cadence_days"} <= {
        line.split(":")[0] for line in text.splitlines() if line.split(":")[0] in FIELDS
    }


def test_problems_and_warnings_have_their_lines(tmp_path: Path) -> None:
    bad, odd = tmp_path / "bad.md", tmp_path / "odd.md"
    bad.write_text("---\nquestion: Why?\nconfidence: 2\nscope_tag: [a]\n---\nBecause.\n")
    odd.write_text("---\nquestion: Why?\ntopic: x\n---\nBecause.\n")
    code, out, _ = invoke("qa", "lint", str(bad), str(odd))
    assert code == 1
    assert out.splitlines() == [
        f"{bad}:3: error: `confidence` is a number from 0 to 1, not '2'",
        f"{bad}:4: error: `scope_tag` is not a key; `scope_tags` is",
        f"{odd}:3: warning: `topic` is not a key of the format; it is kept as it stands",
        f"{odd}: 1 pair",
    ]
    code, out, _ = invoke("qa", "lint", "--json", str(bad), str(odd))
    found = json.loads(out)
    assert (code, [len(one["problems"]) for one in found], [one["pairs"] for one in found]) == (1, [2, 0], [0, 1])


def test_what_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG\r\n\x1a\n\xff")
    code, out, _ = invoke("qa", "lint", str(file))
    assert code == 1
    assert out == f"{file}:1: error: not UTF-8 (byte 0); save the file as UTF-8\n"


def test_convert_writes_a_bundle_and_names_what_it_left_out(tmp_path: Path) -> None:
    file = tmp_path / "faq.md"
    file.write_text("# FAQ\n\n## Where is it hosted?\n\nIn two data centres.\n\n## Who pays?\n")
    code, out, err = invoke("qa", "convert", str(file))
    assert code == 0
    assert 'question: "Where is it hosted?"' in out
    assert err.splitlines() == [
        "faq.md:7: left out: a question without an answer: ## Who pays?",
        "1 pairs by markdown_heading_v1, 1 passages left out",
    ]
    bundle = tmp_path / "bundle.md"
    bundle.write_text(out)
    assert invoke("qa", "lint", str(bundle))[0] == 0
    code, out, _ = invoke("qa", "convert", "--json", str(file))
    told = json.loads(out)
    assert (told["extractor"], len(told["rejects"])) == ("markdown_heading_v1", 1)
    assert told["losses"]["total"] == len(file.read_text())


def test_convert_tells_why_nothing_was_found(tmp_path: Path) -> None:
    file = tmp_path / "prose.md"
    file.write_text("Just prose.\n")
    code, out, err = invoke("qa", "convert", str(file))
    assert (code, out) == (1, "")
    assert "no pair was found" in err
    assert "markdown_heading_v1: line 1: no heading and no bold line of the file is a question" in err
