"""Where the demo is: a bar a step on a terminal, a line a step elsewhere. Always on stderr."""

from __future__ import annotations

from time import monotonic
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class Bars:
    """Implements `burnish.demo.loop.Progress`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task: TaskID | None = None
        self._title = ""
        self._since = monotonic()

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()

    def stop(self) -> None:
        """Finish and leave the bars as they stand; what is printed from now on comes below them."""
        self._finish()
        self._bars.stop()

    def step(self, title: str, total: int | None = None) -> None:
        """Finish the step before, begin this one."""
        self._finish()
        self._title, self._since = title, monotonic()
        self._task = self._bars.add_task(title, total=total or 1)

    def at(self, done: int, total: int | None = None) -> None:
        """How far the step is."""
        if self._task is not None:
            self._bars.update(self._task, completed=done, total=total)

    def remark(self, text: str) -> None:
        """A remark of the supervisor: the title of the step before the loop begins."""
        self.step(text[:1].upper() + text[1:])

    def _finish(self) -> None:
        if self._task is None:
            return
        total = self._bars.tasks[self._task].total
        self._bars.update(self._task, completed=total)
        if not self._console.is_terminal:
            self._console.print(f"{monotonic() - self._since:6.1f} s  {self._title}", highlight=False)
        self._task = None
