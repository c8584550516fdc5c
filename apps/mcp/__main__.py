"""`python -m apps.mcp`: serve over HTTP until SIGTERM."""

from __future__ import annotations

from apps.mcp import http, logs
from apps.mcp.settings import Settings


def main() -> None:
    """Serve with the settings of the environment."""
    settings = Settings()
    logs.configure(settings.log_level)
    http.run(settings.url, settings.http_host, http.listen(settings.http_host, settings.http_port))


if __name__ == "__main__":
    main()
