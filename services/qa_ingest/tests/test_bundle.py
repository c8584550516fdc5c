"""The canonical bundle: what is metadata, what is an answer, and what is refused with its line."""

from __future__ import annotations

from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.qa_ingest.domain.bundle import Bundle, BundleRejected, Entry, parse
from services.qa_ingest.domain.bundle_keys import FIELDS, meant_by
from services.qa_ingest.domain.bundle_writer import Unwritable, canonical, render
from services.qa_ingest.domain.envelope import Source

WORKSPACE = UUID("00000000-0000-4000-8000-000000000001")


def only(text: str) -> Entry:
    (placed,) = parse(text).entries
    return placed.entry


def block(metadata: str, body: str = "An answer.") -> str:
    return f"---\n{metadata}\n---\n{body}\n"


def refused(text: str) -> list[str]:
    with pytest.raises(BundleRejected) as error:
        parse(text, workspace_id=WORKSPACE)
    return list(map(str, error.value.problems))


WHOLE = """# Acme: questions and answers

Last updated: 2026-05-11 by the support desk
Workspace ID: 00000000-0000-4000-8000-000000000001

---

id: acme-001
question: What does the export hold?
alternate_phrasings:
  - What is in an export?
scope_tags: [export, data]
anti_scope_tags: [pricing]
primary_domain: data
primary_subtopic: export
secondary_domain: privacy
secondary_subtopic: erasure
confidence: 0.9
provenance: INFERRED
publication_status: published
valid_from: 2024-01-01
valid_to: 2027-01-01T10:00:00+02:00
sources:
  - file: handbook.docx
    table_index: 0
    row_index: 4
verified_at: 2024-05-22
verified_by: desk@example.org
layer: support
next_review_date: 2026-12-01
review_cadence_days: 180
sensitive: true

---

**Standard answer:**

Every record of the account.

**Advanced answer:**

Every record, and the audit trail.
"""


def test_every_key_reaches_its_field() -> None:
    assert only(WHOLE) == Entry(
        id="acme-001",
        question="What does the export hold?",
        alternate_phrasings=("What is in an export?",),
        scope_tags=("export", "data"),
        anti_scope_tags=("pricing",),
        primary_domain="data",
        primary_subtopic="export",
        secondary_domain="privacy",
        secondary_subtopic="erasure",
        confidence=0.9,
        provenance="INFERRED",
        publication_status="published",
        valid_from=datetime(2024, 1, 1, tzinfo=UTC),
        valid_to=datetime(2027, 1, 1, 8, tzinfo=UTC),
        sources=(Source(file="handbook.docx", table_index=0, row_index=4),),
        verified_at=datetime(2024, 5, 22, tzinfo=UTC),
        verified_by="desk@example.org",
        layer="support",
        next_review_date=date(2026, 12, 1),
        review_cadence_days=180,
        sensitive=True,
        answer_standard="Every record of the account.",
        answer_advanced="Every record, and the audit trail.",
    )


def test_defaults() -> None:
    entry = only(block("question: Why?"))
    assert (entry.provenance, entry.confidence, entry.publication_status, entry.sensitive) == (
        "EXTRACTED",
        1.0,
        "draft",
        False,
    )


# --- what opens metadata ------------------------------------------------------------------------------------


def test_rules_in_an_answer_stay_in_it() -> None:
    body = "One.\n\n---\n\nNote that this is prose.\n\n---\n\n----\n\n---  \nTwo."
    assert only(block("question: Why?", body)).answer_standard == body


def test_metadata_needs_no_blank_lines_around_it() -> None:
    text = "Title\n---\nquestion: One?\n---\nFirst.\n---\nquestion: Two?\n---\nSecond."
    assert [placed.entry.answer_standard for placed in parse(text).entries] == ["First.", "Second."]


def test_a_rule_right_above_the_next_block() -> None:
    text = block("question: One?", "First.\n\n---\n") + block("question: Two?", "Second.")
    assert [placed.entry.answer_standard for placed in parse(text).entries] == ["First.\n\n---", "Second."]


@pytest.mark.parametrize("fence", ["```", "~~~~", "   ```yaml"])
def test_a_block_shown_as_code_is_code(fence: str) -> None:
    close = fence.strip()[:4].rstrip("yaml")
    body = f"Write:\n\n{fence}\n---\nquestion: Not mine?\n---\n{close}\n\nDone."
    assert only(block("question: How?", body)).answer_standard == body


def test_only_comments_are_no_pair_and_a_warning() -> None:
    bundle = parse(block("question: Why?", "Because.\n\n---\n# a heading, or a comment\n---"))
    assert len(bundle.entries) == 1
    assert "# a heading" in bundle.entries[0].entry.answer_standard
    assert [warning.line for warning in bundle.warnings] == [7]


def test_a_byte_order_mark_and_other_line_ends() -> None:
    plain = parse(WHOLE)
    for text in ("\ufeff" + WHOLE, WHOLE.replace("\n", "\r\n"), WHOLE.replace("\n", "\r")):
        assert parse(text) == plain


# --- what is refused, and where -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Prose only.", "line 1: no block of metadata"),
        ("", "line 1: no block of metadata"),
        (block("question: a: b"), "line 2: a `: ` within a value; put the value in quotes"),
        (block("question: One?\nquestion: Two?"), "line 3: `question` is there twice, in lines 2 and 3"),
        (block("question: What is C # for?"), "line 2: `question` has a ` #` in it"),
        (block("id: x"), "line 1: the block has no `question`"),
        (block("question:"), "line 2: `question` is empty"),
        (block("question: [a, b]"), "line 2: `question` is one text"),
        (block(f"question: {'x' * 2001}"), "line 2: `question` has 2,001 characters; the most is 2,000"),
        (block(f"question: x\nid: {'x' * 101}"), "line 3: `id` has 101 characters"),
        (block("question: x", ""), "line 4: the block has no answer"),
        (block("question: x", "x" * 50_001), "line 4: the standard answer has 50,001 characters"),
        (block("question: x\nscope_tag: [a]"), "line 3: `scope_tag` is not a key; `scope_tags` is"),
        (block("question: x\nanti-scope-tags: [a]"), "line 3: `anti-scope-tags` is not a key; `anti_scope_tags` is"),
        (block("question: x\nconfidnce: 1"), "line 3: `confidnce` is not a key; `confidence` is"),
        (block("Question: x\nid: y"), "line 2: `Question` is not a key; `question` is"),
        (block("Question: x"), "line 2: `Question` is not a key; `question` is"),
        (block("question: x\nscope_tags: a"), "line 3: `scope_tags` is a list"),
        (block("question: x\nscope_tags: [a, '']"), "line 3: `scope_tags` has an empty item"),
        (block("question: x\nconfidence: 1.01"), "line 3: `confidence` is a number from 0 to 1"),
        (block("question: x\nconfidence: nan"), "line 3: `confidence` is a number from 0 to 1"),
        (block("question: x\nconfidence: 1e-3"), "line 3: `confidence` is a number from 0 to 1"),
        (block("question: x\nprovenance: extracted"), "line 3: `provenance` is one of EXTRACTED, INFERRED, AMBIGUOUS"),
        (block("question: x\nvalid_from: 01.02.2024"), "line 3: `valid_from` is a date"),
        (block("question: x\nvalid_from: 2024-02-30"), "line 3: `valid_from` is a date"),
        (block("question: x\nvalid_to: 0001-01-01T00:00:00+14:00"), "line 3: `valid_to` is a date"),
        (
            block("question: x\nvalid_from: 2024-01-02\nvalid_to: 2024-01-02"),
            "line 4: `valid_to` must be later than `valid_from`",
        ),
        (block("question: x\nreview_cadence_days: 1096"), "line 3: `review_cadence_days` is a whole number from 1 to"),
        (block("question: x\nreview_cadence_days: ٣"), "line 3: `review_cadence_days` is a whole number"),
        (block("question: x\nsensitive: yes"), "line 3: `sensitive` is true or false"),
        (block("question: x\nsources: [{table_index: 1}]"), "line 3: `sources` has a source without `file`"),
        (block("question: x\nsources: [{file: a, page: 1}]"), "line 3: `sources` has 'page'"),
        (block("question: &a x"), "line 2: the metadata is no plain YAML: an anchor"),
        (block("question: !!str x"), "line 2: the metadata is no plain YAML: a tag"),
        (block("question: x\nid: *a"), "line 3: the metadata is no plain YAML: an alias"),
        (block("question: x\ndeep: " + "[" * 9 + "]" * 9), "line 3: the metadata is no plain YAML: nested deeper"),
        ("---\nquestion: x\n\nAn answer.", "line 1: the metadata that begins here has no `---` below it"),
        (block("question: x", "a\n**Standard answer:** b"), "line 4: text above **Standard answer:**"),
        (
            block("question: x", "**Standard answer:** a\n**Standard answer:** b"),
            "line 5: a second **Standard answer:**",
        ),
        (block("question: x", "a\n**Advanced answer:**"), "line 5: **Advanced answer:** is empty"),
        (block("question: x", "a\0b"), "line 4: a control character (U+0000) in column 2"),
        (
            block("question: x\nid: a") + block("question: y\nid: a"),
            "line 6: `id` 'a' is there twice, in the blocks of lines 1 and 6",
        ),
        (
            block("question: x", "```\ncode") + block("question: y"),
            "line 4: the code fence that opens here is never closed, and would take the block in line 6 along",
        ),
        ("Workspace ID: 7\n" + block("question: x"), "line 1: `Workspace ID` is neither blank nor a UUID"),
        (
            "Workspace ID: 00000000-0000-4000-8000-000000000002\n" + block("question: x"),
            "line 1: `Workspace ID` is 00000000-0000-4000-8000-000000000002, and the file was put into",
        ),
    ],
)
def test_a_mistake_names_its_line_and_what_would_be_right(text: str, told: str) -> None:
    problems = refused(text)
    assert any(problem.startswith(told) for problem in problems), problems


def test_a_bad_block_never_becomes_part_of_the_answer_above() -> None:
    text = block("question: One?") + block("valid_from: soon\nquestion: Two?") + block("layer: [")
    assert [problem.split(":")[0] for problem in refused(text)] == ["line 6", "line 11"]


def test_every_problem_is_told_at_once() -> None:
    assert len(refused(block("question:\nconfidence: 2\nscope_tag: x", ""))) == 4


@pytest.mark.parametrize("key", ["resources", "quest", "tags", "note", "topics", "valid", "idea", "i"])
def test_a_key_of_ones_own_is_kept_and_warned_about(key: str) -> None:
    bundle = parse(block(f"question: x\n{key}: [1, {{a: no}}]"))
    assert bundle.entries[0].entry.metadata == {key: ["1", {"a": "no"}]}
    assert [warning.line for warning in bundle.warnings] == [3]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("quesiton", "question"),
        ("qestion", "question"),
        ("questionn", "question"),
        ("Question", "question"),
        ("questions", "question"),
        ("ids", "id"),
        ("ID", "id"),
        ("source", "sources"),
        ("Scope Tags", "scope_tags"),
        ("valid-form", "valid_from"),
        ("alternate_phrasing", "alternate_phrasings"),
        ("sensitiv", "sensitive"),
    ],
)
def test_a_mistyped_key_is_told_with_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert meant_by(typed) == meant


def test_words_that_yaml_would_turn_into_something_else_stay_words() -> None:
    entry = only(block("question: on\nscope_tags: [y, no, on, true, null-ish, 1.0, 0x1F, 2024-01-01]"))
    assert entry.question == "on"
    assert entry.scope_tags == ("y", "no", "on", "true", "null-ish", "1.0", "0x1F", "2024-01-01")


@pytest.mark.parametrize("value", ["2024-01-01", "'2024-01-01'", "2024-01-01T00:00:00Z", "2024-01-01T02:00:00+02:00"])
def test_a_date_is_the_same_instant_however_it_is_written(value: str) -> None:
    assert only(block(f"question: x\nvalid_from: {value}")).valid_from == datetime(2024, 1, 1, tzinfo=UTC)


def test_equal_questions_are_kept_and_told() -> None:
    bundle = parse(block("question: Why?") + block("question: why?"))
    assert (len(bundle.entries), [warning.line for warning in bundle.warnings]) == (2, [5])


# --- what is written is read again ----------------------------------------------------------------------------

TEXT = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff"), min_size=1)
LINE = TEXT.map(str.strip).filter(bool)
STRUCTURE = st.sampled_from(
    [
        "    code",
        "a\r",
        "\r\n",
        "\t",
        "🙂",
        "---",
        "--- ",
        "```",
        "~~~",
        "````",
        "**Standard answer:**",
        "**Advanced answer:** x",
        "\\---",
        "\\\\---",
        "",
        "a",
    ]
)
META = st.sampled_from(["question: x", "id: y", "Question: z", "# only", "- a", "scope_tag: b", "layer: ["])
ANSWER = (
    st.lists(st.one_of(LINE, STRUCTURE, META), min_size=1, max_size=12)
    .map("\n".join)
    .filter(lambda answer: answer.strip() != "")
)


OWN_KEY = LINE.filter(lambda key: meant_by(key) is None and key not in (*FIELDS, "<<"))


SOURCE = st.builds(Source, file=LINE.filter(lambda text: len(text) <= 500), table_index=st.none() | st.integers(0, 9))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    optional = st.none() | LINE.filter(lambda text: len(text) <= 100)
    begins = draw(st.none() | st.datetimes(datetime(1, 1, 2), datetime(9000, 1, 1), timezones=st.just(UTC)))
    return Entry(
        question=draw(LINE),
        answer_standard=draw(ANSWER),
        answer_advanced=draw(st.none() | ANSWER),
        id=draw(optional),
        alternate_phrasings=tuple(draw(st.lists(LINE, max_size=3, unique=True))),
        scope_tags=tuple(draw(st.lists(LINE, max_size=3, unique=True))),
        primary_domain=draw(optional),
        confidence=draw(st.integers(0, 100)) / 100,
        provenance=draw(st.sampled_from(["EXTRACTED", "INFERRED", "AMBIGUOUS"])),
        valid_from=begins,
        sources=tuple(
            draw(st.lists(st.builds(Source, file=LINE, table_index=st.none() | st.integers(0, 9)), max_size=2))
        ),
        next_review_date=draw(st.none() | st.dates()),
        sensitive=draw(st.booleans()),
        metadata=draw(st.dictionaries(OWN_KEY, LINE, max_size=2)),
    )


def same(bundle: Bundle) -> list[Entry]:
    return [placed.entry for placed in bundle.entries]


@given(st.lists(entries(), min_size=1, max_size=3, unique_by=lambda entry: entry.id or id(entry)))
def test_what_is_written_is_read_again_as_the_same(written: list[Entry]) -> None:
    text = render(written, title="Questions", workspace_id=WORKSPACE)
    again = same(parse(text, workspace_id=WORKSPACE))
    assert again == [canonical(entry) for entry in written]
    assert render(again, title="Questions", workspace_id=WORKSPACE) == text


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("first\n\n---\n\nid: x\n\n---\nlast", "first\n\n---\n\nid: x\n\n---\nlast"),
        ("---\nquestion: x\n---\ny", "---\nquestion: x\n---\ny"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\n   \n    code\ntext  \n\n", "    code\ntext"),
        ("```\n---\nquestion: x\n---", "```\n---\nquestion: x\n---\n```"),
        ("~~~~ yaml\n```", "~~~~ yaml\n```\n~~~~"),
        ("**Advanced answer:** none", "**Advanced answer:** none"),
        ("\\**Standard answer:**", "\\**Standard answer:**"),
        ("🙂 \u2028 \u0085 x", "🙂 \u2028 \u0085 x"),
        ("x" * 50_000, "x" * 50_000),
    ],
    ids=range(10),
)
def test_an_answer_comes_back_as_it_was(answer: str, kept: str) -> None:
    written = [Entry(question="a", answer_standard=answer, answer_advanced=tier) for tier in (None, answer)]
    again = same(parse(render([*written, *written], title="x")))
    assert [(each.answer_standard, each.answer_advanced) for each in again] == [(kept, None), (kept, kept)] * 2


@pytest.mark.parametrize(
    "text", ["null", "~", "y", "no", "on", "2024-01-01", "1.0", "a: b", "# x", "a # b", "'", '"', "{}"]
)
def test_a_text_stays_a_text(text: str) -> None:
    entry = Entry(
        question=text,
        answer_standard="x",
        id=text,
        scope_tags=(text,),
        layer=text,
        metadata={"own": text, "more": [text]},
    )
    assert same(parse(render([entry], title="x"))) == [entry]


def test_keys_of_ones_own_that_would_be_mistaken_are_renamed_and_numbers_become_texts() -> None:
    entry = Entry(
        question="a", answer_standard="b", metadata={"scope_tag": "x", "id": 3, "own key": {"n": [1.5, True]}}
    )
    (again,) = same(parse(render([entry], title="x")))
    assert again.metadata == {"original_scope_tag": "x", "original_id": "3", "own key": {"n": ["1.5", "true"]}}


def test_what_no_bundle_can_say_is_told() -> None:
    entry = Entry(question="a", answer_standard="b", metadata={"own": "x" * 70_000})
    with pytest.raises(Unwritable, match="characters of metadata; the most is 65,536"):
        render([entry], title="x")


@pytest.mark.parametrize("written", ['"a\\0b"', '"\\x07"', '"\\ud800"', '"\\u007f"'])
def test_no_escape_brings_a_control_character_in(written: str) -> None:
    for metadata in (f"question: {written}", f"question: a\nown: {written}", f"question: a\n{written}: own"):
        assert ["control character" in problem for problem in refused(block(metadata))] == [True]


def test_a_tag_of_any_length_is_told_and_not_tripped_over() -> None:
    (problem,) = refused(block(f"question: a\nscope_tags: [{'x' * 501}]"))
    assert problem == "line 3: `scope_tags` has 501 characters; the most is 500"


@given(st.lists(st.one_of(STRUCTURE, META, st.just("question: Why?"), LINE), max_size=30).map("\n".join))
def test_any_text_is_read_or_refused_with_lines(text: str) -> None:
    try:
        bundle = parse(text)
    except BundleRejected as error:
        lines = [problem.line for problem in error.problems]
    else:
        lines = [line + 1 for placed in bundle.entries for line in range(placed.first, placed.end)]
        assert lines == list(range(bundle.entries[0].line, bundle.lines + 1))
    assert lines
    assert all(1 <= line <= text.count("\n") + 2 for line in lines)
