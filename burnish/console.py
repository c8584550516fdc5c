"""The printer's side of Rich: whatever is in a table, panel or bar, only Rich itself steers the terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from libs.contracts.printable import is_visible

REPLACEMENT = "\ufffd"
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")


class CleanConsole(Console):
    """Replaces what cannot be seen, one for one, so that what was laid out stays laid out."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(_NOT_ASCII.sub(_seen, segment.text), segment.style)


def _seen(found: re.Match[str]) -> str:
    return found[0] if is_visible(found[0]) else REPLACEMENT
