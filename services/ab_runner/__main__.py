"""`python -m services.ab_runner`: run the service until SIGTERM."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.ab_runner.app import build
from services.ab_runner.settings import Settings


def main() -> None:
    """Run with the settings of the environment."""
    settings = Settings()
    logging.configure("ab_runner", settings.log_level)
    asyncio.run(build(settings).run())


if __name__ == "__main__":
    main()
