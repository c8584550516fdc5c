"""Settings of the scanner, from environment variables with the prefix `BURNISH_`."""

from __future__ import annotations

import os

from pydantic import Field, SecretStr

from libs.service_kit.settings import KitSettings
from services.scanner.domain import PLATFORM_DSN


class Settings(KitSettings):
    """Where the platform's database is, and how patiently it is read."""

    platform_dsn: SecretStr | None = None
    scan_slots: int = Field(default=8, ge=1, description="scans at the same time, in this process")
    scan_page_rows: int = Field(default=500, ge=1, le=500)
    scan_pages: int = Field(default=200, ge=1, description="pages a run; what is left over is read by the next run")
    scan_timeout_s: float = Field(default=60.0, gt=0.0)
    scan_statement_timeout_s: float = Field(default=15.0, gt=0.0, le=25.0)
    scan_lease_s: float = Field(default=30.0, ge=1.0, description="longer than one page takes")
    scan_overlap_s: float = Field(
        default=30.0, ge=0.0, description="how long a transaction of the platform may take to commit a row it stamped"
    )
    scan_backoff_most_s: float = Field(default=900.0, gt=0.0)
    scan_poll_s: float = Field(default=1.0, gt=0.0)
    scan_runs_kept_days: int = Field(default=30, ge=1)
    resolve_timeout_s: float = Field(default=5.0, gt=0.0)

    def dsn(self, variable: str) -> str | None:
        """The DSN in the environment variable of this name; a touchpoint may only name `BURNISH_PLATFORM_…`."""
        if variable == PLATFORM_DSN:
            return self.platform_dsn.get_secret_value() if self.platform_dsn else None
        return os.environ.get(variable) if variable.startswith("BURNISH_PLATFORM_") else None
