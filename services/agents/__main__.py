"""`python -m services.agents`: run the service until SIGTERM."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.agents.app import build
from services.agents.settings import Settings


def main() -> None:
    """Run with the settings of the environment."""
    settings = Settings()
    logging.configure("agents", settings.log_level)
    asyncio.run(build(settings).run())


if __name__ == "__main__":
    main()
