"""Runs the gateway."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.gateway.app import build
from services.gateway.settings import Settings


def main() -> None:
    """Run until SIGTERM."""
    settings = Settings()
    logging.configure("gateway", settings.log_level)
    asyncio.run(build(settings).run())


if __name__ == "__main__":
    main()
