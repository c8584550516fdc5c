"""Keys, addresses, tiers and prices: what is missing or wrong is an answer that names its setting."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.llm import ModelError, open_model
from libs.llm.prices import Counted, ModelFacts, published, read_table

KEY = "sk-secret-0123456789"
ROW = 'output = 5\nas_of = 2026-11-01\nsource = "x"'


def reason(provider: str, name: str) -> str:
    with pytest.raises(ModelError) as raised:
        open_model(provider, name)
    assert not raised.value.retryable
    assert KEY not in str(raised.value)
    return raised.value.reason


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_missing_key_names_its_setting(no_settings: pytest.MonkeyPatch, provider: str) -> None:
    variable = f"BURNISH_{provider.upper()}_API_KEY"
    assert reason(provider, "m") == f"there is no API key: set {variable}, or {variable}_FILE to a file"
    # What other programs use is not taken: nobody spends from a key that was not given to burnish.
    no_settings.setenv(f"{provider.upper()}_API_KEY", KEY)
    assert variable in reason(provider, "m")


def test_a_key_comes_from_its_variable_or_a_file(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    no_settings.setenv("BURNISH_ANTHROPIC_API_KEY_FILE", str(file))
    model = open_model("anthropic", "claude-haiku-5-5")
    assert (model.provider, model.name) == ("anthropic", "claude-haiku-5-5")
    assert KEY not in repr(model)
    no_settings.setenv("BURNISH_ANTHROPIC_API_KEY", KEY)
    no_settings.setenv("BURNISH_ANTHROPIC_API_KEY_FILE", "/nowhere")
    open_model("anthropic", "claude-haiku-5-5")


@pytest.mark.parametrize("file", ["absent", "folder", "empty"])
def test_a_key_file_that_is_none_is_named(no_settings: pytest.MonkeyPatch, tmp_path: Path, file: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty").write_text("\n")
    no_settings.setenv("BURNISH_OPENAI_API_KEY_FILE", str(tmp_path / file))
    assert "BURNISH_OPENAI_API_KEY_FILE" in reason("openai", "m")


def test_a_key_with_other_characters_is_not_sent(no_settings: pytest.MonkeyPatch) -> None:
    no_settings.setenv("BURNISH_OPENAI_API_KEY", f"{KEY}\r\nX-Evil: 1")
    assert "BURNISH_OPENAI_API_KEY is no API key" in reason("openai", "m")


@pytest.mark.parametrize(
    "url", ["ftp://x", "api.openai.com", "http://user:pw@host", "http://h/?key=1", "http://[x", ""]
)
def test_an_address_that_is_none_is_named(no_settings: pytest.MonkeyPatch, url: str) -> None:
    no_settings.setenv("BURNISH_OPENAI_API_KEY", KEY)
    no_settings.setenv("BURNISH_OPENAI_BASE_URL", url)
    assert reason("openai", "m").startswith("BURNISH_OPENAI_BASE_URL: ")


def test_a_model_elsewhere_has_its_host_in_its_name(no_settings: pytest.MonkeyPatch) -> None:
    no_settings.setenv("BURNISH_OPENAI_API_KEY", KEY)
    no_settings.setenv("BURNISH_OPENAI_BASE_URL", "http://models.internal:8000/v1/")
    assert open_model("openai", "llama").name == "llama@models.internal:8000"


# --- tiers ----------------------------------------------------------------------------------------------------


def test_a_tier_is_the_model_that_it_is_mapped_to(no_settings: pytest.MonkeyPatch) -> None:
    no_settings.setenv("BURNISH_MODEL_TIERS", '{"quality": "offline/offline", "analysis": "anthropic/claude-opus-5"}')
    no_settings.setenv("BURNISH_ANTHROPIC_API_KEY", KEY)
    assert open_model("tier", "quality").provider == "offline"
    analysis = open_model("tier", "analysis")
    assert (analysis.provider, analysis.name) == ("anthropic", "claude-opus-5")


@pytest.mark.parametrize(
    ("tiers", "name", "expected"),
    [
        ("{}", "analysis", "no model is configured for the tier 'analysis': set BURNISH_MODEL_TIERS"),
        ("{}", "best", "tier 'best' is unknown: expected one of analysis, drafting, quality"),
        ('{"analysis": "gpt"}', "analysis", "BURNISH_MODEL_TIERS: a model is written as provider/name"),
        ('{"analysis": "tier/analysis"}', "analysis", "must be mapped to a model"),
        ('{"analysis": "nobody/x"}', "analysis", "model provider 'nobody' is unknown"),
        ("{not json", "analysis", "BURNISH_MODEL_TIERS must be JSON"),
        ('{"analysis": 3}', "analysis", "BURNISH_MODEL_TIERS: "),
    ],
)
def test_a_tier_that_leads_nowhere_says_so(
    no_settings: pytest.MonkeyPatch, tiers: str, name: str, expected: str
) -> None:
    no_settings.setenv("BURNISH_MODEL_TIERS", tiers)
    assert expected in reason("tier", name)


# --- prices ---------------------------------------------------------------------------------------------------


def test_every_published_price_has_a_date_and_a_source() -> None:
    rows = [row for models in published().rows.values() for row in models.values()]
    assert len(rows) >= 10
    for row in rows:
        assert row.source.startswith(("https://platform.claude.com/", "https://developers.openai.com/"))
        assert row.as_of.year >= 2026
        assert 0 < row.input < row.output


def test_a_long_request_costs_its_own_price_as_a_whole() -> None:
    haiku = published().of("anthropic", "claude-haiku-5-5")
    assert haiku is not None
    assert haiku.usd(Counted(input=100_000, output=1_000)) == Decimal("0.0105")
    assert haiku.usd(Counted(input=100_001, output=1_000)) == Decimal("0.0525005")
    assert haiku.usd(Counted(input=1, cached=200_000, output=0)) == Decimal("0.0100005")


@given(st.integers(0, 500_000), st.integers(0, 500_000), st.integers(0, 500_000), st.integers(0, 100_000))
def test_no_call_costs_more_than_its_most(new: int, cached: int, written: int, output: int) -> None:
    counted = Counted(input=new, cached=cached, cache_written=written, output=output)
    for models in published().rows.values():
        for facts in models.values():
            assert facts.usd(counted) <= facts.most_usd(counted.whole_input, output)
            assert facts.usd(counted) <= facts.most_usd(counted.whole_input + 7, output + 7)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[openai.m\ninput = 1", "is no TOML"),
        ("[openai.m]\ninput = 1\n" + ROW.replace("output = 5\n", ""), "openai.m.output: Field required"),
        (f"[openai.m]\ninput = -1\n{ROW}", "openai.m.input: "),
        (f"[openai.m]\ninput = nan\n{ROW}", "openai.m.input: "),
        (f"[openai.m]\ninput = 1\nper = 1\n{ROW}", "openai.m.per: Extra inputs"),
        (f"[openai.m]\ninput = 1\ninput_above = 2\n{ROW}", "come together"),
        ("[openai.m]\ninput = 1\noutput = 5", "openai.m.as_of: Field required"),
        ("openai = 3", "openai"),
    ],
)
def test_a_price_table_that_is_wrong_names_the_field(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ModelError) as raised:
        read_table(file)
    assert expected in raised.value.reason
    assert "mine.toml" in raised.value.reason


def test_a_price_table_that_is_not_there_is_named(no_settings: pytest.MonkeyPatch) -> None:
    no_settings.setenv("BURNISH_OPENAI_API_KEY", KEY)
    no_settings.setenv("BURNISH_MODEL_PRICES", "/nowhere/prices.toml")
    assert "/nowhere/prices.toml" in reason("openai", "m")


def test_a_table_of_ones_own_goes_before_ours(no_settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'[openai."gpt-6-luna"]\ninput = 0\n{ROW.replace("5", "0", 1)}')
    assert read_table(file).of("openai", "gpt-6-luna") == ModelFacts(
        input=Decimal(0), output=Decimal(0), as_of="2026-11-01", source="x"
    )
    assert read_table(file).of("openai", "other") is None
