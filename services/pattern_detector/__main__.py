"""`python -m services.pattern_detector`: run the service until SIGTERM."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.pattern_detector.app import build
from services.pattern_detector.settings import Settings


def main() -> None:
    """Run with the settings of the environment."""
    settings = Settings()
    logging.configure("pattern_detector", settings.log_level)
    asyncio.run(build(settings).run())


if __name__ == "__main__":
    main()
