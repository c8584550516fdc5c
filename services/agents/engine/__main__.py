"""`python -m services.agents.engine FOLDER [PORT]`: the small engine by itself, until it is stopped."""

from __future__ import annotations

import sys
from pathlib import Path

import uvicorn

from services.agents.engine.server import build


def main() -> None:
    """Serve on 127.0.0.1."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "engine")
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 8790
    uvicorn.run(build(folder), host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
