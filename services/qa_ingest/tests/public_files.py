"""Where the public FAQ files are that tests read and that are no part of the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("BURNISH_SHARED_DATA", Path(__file__).parents[4] / "shared" / "data")) / "faq"
needs_files = pytest.mark.skipif(
    not SHARED.is_dir(), reason="needs the public FAQ files: set BURNISH_SHARED_DATA to the folder that holds faq/"
)
