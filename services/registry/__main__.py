"""Runs the registry."""

from __future__ import annotations

import asyncio

from libs.service_kit import logging
from services.registry.app import build
from services.registry.settings import Settings


def main() -> None:
    """Run until SIGTERM."""
    settings = Settings()
    logging.configure("registry", settings.log_level)
    asyncio.run(build(settings).run())


if __name__ == "__main__":
    main()
