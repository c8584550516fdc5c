"""`python -m services.qa_ingest`: run the service until SIGTERM."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.qa_ingest.app import build
from services.qa_ingest.settings import Settings


def main() -> None:
    """Run with the settings of the environment."""
    settings = Settings()
    logging.configure("qa_ingest", settings.log_level)
    asyncio.run(build(settings).run())


if __name__ == "__main__":
    main()
