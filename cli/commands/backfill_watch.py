"""What `backfill` shows while it runs, on stderr: a live table on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cli.captured import stderr_lines
from cli.commands.backfill_progress import Progress, Row
from cli.durations import time_text
from replicator.config import Flow
from replicator.jobs.engine import PartitionProgress
from replicator.jobs.range_copy import RangeDone
from replicator.jobs.ranges import Range
from replicator.model.errors import ReplicatorError
from replicator.model.partition import Partition

if TYPE_CHECKING:
    from replicator.spark.range_ledger import RangeLedger

LINE_S = 10.0
"""Between two lines of progress where there is no terminal."""
TOPICS_SHOWN = 15
_SIZES = ("B", "KB", "MB", "GB", "TB")


class Watch:
    """Implements `Observer`: numbers into `progress`, rows into the ledger, lines or a live table to stderr."""

    def __init__(self, flow: Flow, console: Console) -> None:
        self._flow, self._console, self.progress = flow, console, Progress()
        self.ledger: RangeLedger | None = None
        self.ledger_error = ""
        self._said_s, self._doing = 0.0, ""
        self._ending = ExitStack()
        self._live: Live | None = None
        if console.is_terminal:
            self._live = Live(console=console, get_renderable=self._drawn, refresh_per_second=2, transient=True)

    def __enter__(self) -> Watch:
        if self._live is not None:
            self._ending.enter_context(stderr_lines(self._raw))
            self._ending.enter_context(self._live)
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def leave(self) -> None:
        """Give the terminal back, from a signal handler."""
        self._console.show_cursor(True)

    def doing(self, what: str) -> None:
        """Say what happens before there is anything to watch."""
        self._doing = what

    def stopping(self) -> None:
        """Note that a clean stop was asked for."""
        self.progress.stopping = True
        self._say("stopping: what is committed stays; the flow is handed over to the daemon. Again: leave at once")

    def planned(
        self, generation: int, ranges: Sequence[Range], progress: Mapping[Partition, PartitionProgress]
    ) -> None:
        """Show what was planned. Like the methods below, one of `Observer`."""
        self.progress.planned(generation, ranges, progress)
        total = self.progress.total()
        self._say(
            f"generation {generation}: {total.offsets:,} offsets of {total.partitions} partitions, "
            f"in {len(ranges):,} ranges"
        )

    def moved(self, progress: Mapping[Partition, PartitionProgress]) -> None:
        self.progress.moved(progress)
        self._say_progress()

    def positions_unknown(self, reason: str) -> None:
        self.progress.positions_unknown = reason
        self._say_progress()

    def answered(self, cut: Range, done: RangeDone) -> None:
        self.progress.answered(done)
        self._write(lambda ledger: ledger.append(cut, done))

    def ended(self) -> None:
        """Note that nothing more will be answered."""
        self._write(lambda ledger: ledger.flush())

    @property
    def ledger_rows(self) -> int:
        """Rows of the list of ranges, if it is complete; else 0."""
        return 0 if self.ledger is None or self.ledger_error else self.ledger.written

    def _write(self, write: Callable[[RangeLedger], None]) -> None:
        if self.ledger is None or self.ledger_error:
            return
        try:
            write(self.ledger)
        except ReplicatorError as error:  # copying doesn't depend on the list of ranges
            self.ledger_error = str(error)
            self._say(f"warning: {error}; it has {self.ledger.written:,} ranges and gets no more")

    def _say(self, text: str) -> None:
        self._said_s = time.monotonic()
        at = time.strftime("%H:%M:%S ") if self._live is None else ""
        self._console.print(f"{at}{self._flow.name}: {text}", markup=False, soft_wrap=True)

    def _raw(self, line: str) -> None:
        self._console.print(line, style="dim", markup=False, soft_wrap=True)

    def _say_progress(self) -> None:
        if self._live is None and time.monotonic() - self._said_s >= LINE_S:
            self._say("; ".join((line_of(self.progress), *notes(self.progress))))

    def _drawn(self) -> Group:
        progress, flow = self.progress, self._flow
        head = f"{flow.name}: {flow.source.name} → {flow.target.name}"
        if not progress.generation:
            return Group(Text(f"{head}: {self._doing}"))
        head += f", generation {progress.generation}"
        notes_drawn = [Text(note, style="yellow") for note in notes(progress)]
        return Group(Text(head), _table(progress), *notes_drawn)


def notes(progress: Progress) -> list[str]:
    """Say what is unusual now."""
    stalled_s = progress.stalled_s()
    found = [] if stalled_s is None else [f"nothing was committed for {stalled_s:.0f} s"]
    if progress.positions_unknown:
        found.append(f"the positions cannot be read: {progress.positions_unknown}")
    if progress.stopping:
        found.append("stopping; again to leave at once")
    return found


def line_of(progress: Progress) -> str:
    """Say everything in one line."""
    row = progress.total()
    offsets, records, size, rate, left = _cells(row)
    return (
        f"{row.percent}%, {offsets} offsets, {row.done} of {row.partitions} partitions done, "
        f"{records} records, {size}, {rate} records/s, {left} left"
    )


def _table(progress: Progress) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("topic", overflow="fold")
    table.add_column("partitions done", justify="right")
    table.add_column("", width=20)
    for heading in ("offsets", "records", "bytes", "records/s", "time left"):
        table.add_column(heading, justify="right", no_wrap=True)
    topics = progress.topics()
    shown = sorted(topics, key=lambda row: (row.done == row.partitions, not row.records_rate, row.name))[:TOPICS_SHOWN]
    total = progress.total()
    if len(topics) > 1:
        shown.append(replace(total, name=f"all {len(topics)} topics"))
    for row in shown:
        bar = ProgressBar(total=1.0, completed=row.fraction, width=20)
        table.add_row(escape(row.name), f"{row.done} of {row.partitions}", bar, *_cells(row))
    return table


def _cells(row: Row) -> tuple[str, str, str, str, str]:
    rate = "-" if row.records_rate is None else f"{row.records_rate:,.0f}"
    size = "-" if row.bytes is None else f"{'' if row.exact else '~'}{size_text(row.bytes)}"
    left = "-" if row.left_s is None else time_text(row.left_s)
    return f"{row.offsets_done:,} of {row.offsets:,}", f"{row.records:,}", size, rate, left


def size_text(size: float) -> str:
    """Write bytes with a decimal unit."""
    for unit in _SIZES[:-1]:
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} {_SIZES[-1]}"
