"""Which buckets the settings name."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from services.qa_ingest.settings import Settings


def test_a_folder_is_beside_the_file_that_names_it(tmp_path: Path) -> None:
    file = tmp_path / "buckets.yaml"
    file.write_text(
        "buckets:\n"
        "  - {bucket: a, folder: inbox, workspace: W}\n"
        f"  - {{bucket: b, folder: {tmp_path}/other, workspace: W}}\n"
        "  - {bucket: c, kind: s3, s3_bucket: x-y-z, workspace: W}\n"
    )
    settings = Settings(database_url=SecretStr("postgresql://x@localhost/x"), qa_buckets=file)
    found = {each.bucket: each.options.get("folder") for each in settings.bindings().buckets}
    assert found == {"a": str(tmp_path / "inbox"), "b": str(tmp_path / "other"), "c": None}
