"""A replica in a process of its own, to be killed: `python -m services.ab_runner.tests.replica FILE DELAY_S`.

Its model is the rule model, slowed down; every answer it gives is appended to FILE before anything else can happen.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from libs.llm import ModelReply, ModelRequest
from services.ab_runner.app import build
from services.ab_runner.settings import Settings
from services.ab_runner.tests.support import RuleModel

CONCURRENCY = 2


class SlowModel(RuleModel):
    """The rule model with a latency, keeping account of what it was paid for."""

    def __init__(self, account: Path, delay_s: float) -> None:
        super().__init__()
        self._account = os.open(account, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._delay_s = delay_s

    async def complete(self, request: ModelRequest) -> ModelReply:
        """The rule model's answer, later."""
        await asyncio.sleep(self._delay_s)
        reply = await super().complete(request)
        os.write(self._account, f"{hash((request.system, request.input)):x}\n".encode())
        return reply


def main() -> None:
    """Run until killed."""
    model = SlowModel(Path(sys.argv[1]), float(sys.argv[2]))
    asyncio.run(build(Settings(model_concurrency=CONCURRENCY), lambda _provider, _name: model).run())


if __name__ == "__main__":
    main()
