"""The status page: one self-contained page for people, made on the server. No scripts, nothing loaded from elsewhere.

It shows the same views as the metrics, bounded whatever a flow has, and changes nothing. All that comes from a cluster
is escaped twice: control characters here, HTML by jinja2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from jinja2 import Environment, PackageLoader, StrictUndefined

from replicator.flow.restarts import Stage
from replicator.lane.ports import Clock
from replicator.model.counting import counted
from replicator.model.incident_kinds import KINDS
from replicator.model.printable import printable
from replicator.observe.figures import LaneFigures
from replicator.observe.history import CopyRate, History, Sample, rate_now, rates
from replicator.observe.plot import Plot, plot
from replicator.observe.view import Doing, FlowView, PartitionView

TOPICS_SHOWN, PARTITIONS_SHOWN, LANES_SHOWN = 200, 50, 32
"""Of one flow: rows of its topics, of partitions that are not copied, and of lanes."""
REFRESH_S = 10
STAGES = {
    Stage.STARTING: ("open", "starting"),
    Stage.RUNNING: ("good", "running"),
    Stage.ENDED: ("bad", "ended; it is started again"),
    Stage.OVER: ("bad", "over; this process doesn't start it again"),
}
"""By stage: the tone of its mark, and words."""
DOINGS = {
    Doing.UNDECIDED: ("open", "undecided"),
    Doing.COPYING: ("good", "copying"),
    Doing.WAITING: ("open", "waiting"),
    Doing.STOPPED: ("bad", "stopped"),
    Doing.GONE: ("removed", "gone"),
}
"""The same for what a partition does."""
GRAVITY = (Doing.STOPPED, Doing.WAITING, Doing.UNDECIDED, Doing.GONE, Doing.COPYING)
ROUND_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Process:
    """Who runs what is shown. `started_ms`: wall clock."""

    host: str
    pid: int
    version: str
    started_ms: int


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One source topic. Its lag is None unless it is known of each partition that has a position."""

    name: str
    counts: Counter[Doing]
    records: int
    lag_records: int | None
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class ShownFlow:
    """What is shown of one flow. `kept`: partitions that are not copied, the gravest first, as many as are shown;
    `kept_count`: how many there are. `topics` are those shown of `topic_count`, `lanes` likewise."""

    view: FlowView
    rate: CopyRate | None
    lag_plot: Plot | None
    rate_plot: Plot | None
    topics: list[TopicRow]
    topic_count: int
    kept: list[PartitionView]
    kept_count: int
    lanes: list[tuple[int, LaneFigures]]


class StatusPage:
    """Makes the page of one process."""

    def __init__(
        self, process: Process, flows: Callable[[], Sequence[FlowView]], history: History, clock: Clock
    ) -> None:
        """`flows`: as they are now."""
        self._process, self._flows, self._history, self._clock = process, flows, history, clock
        environment = Environment(
            loader=PackageLoader("replicator.observe", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {
            "number": _number,
            "bytes": size_text,
            "time": _time,
            "duration": duration_text,
            "counted": counted,
            "printable": printable,
        }
        self._template = environment.get_template("status.html.j2")

    def html(self) -> bytes:
        """Return the page as it is now. From any thread."""
        now_ms = self._clock.now_ms()
        return self._template.render(
            process=self._process,
            now_ms=now_ms,
            running_s=(now_ms - self._process.started_ms) / 1000,
            sections=[section(view, self._history.samples(view.name)) for view in self._flows()],
            refresh_s=REFRESH_S,
            stages=STAGES,
            doings=DOINGS,
            gravity=GRAVITY,
            kinds=KINDS,
            stopped=Doing.STOPPED,
        ).encode()


def section(view: FlowView, samples: Sequence[Sample]) -> ShownFlow:
    """Choose what is shown of a flow. Pure."""
    times = [sample.at_s for sample in samples]
    per_s = [rate.records for rate in rates(samples)]
    topics = sorted(_topics(view), key=lambda row: (min(map(GRAVITY.index, row.counts)), row.name))
    kept = [each for each in view.partitions if each.doing not in (Doing.COPYING, Doing.GONE)]
    kept.sort(key=lambda each: (GRAVITY.index(each.doing), each.at))
    return ShownFlow(
        view,
        rate_now(samples),
        plot(times, [sample.lag_records for sample in samples]),
        plot(times[1:], per_s),
        topics[:TOPICS_SHOWN],
        len(topics),
        kept[:PARTITIONS_SHOWN],
        len(kept),
        sorted(view.lanes.items())[:LANES_SHOWN],
    )


def _topics(view: FlowView) -> Iterator[TopicRow]:
    for name, partitions in groupby(view.partitions, key=lambda each: each.at.topic):
        of_topic = FlowView(view.name, view.source, view.target, view.stage, tuple(partitions), {})
        yield TopicRow(name, of_topic.counts, of_topic.records, of_topic.lag_records, of_topic.lag_seconds)


def _number(value: float | None) -> str:
    """With commas; a fraction only of small numbers."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"


def size_text(count: float | None) -> str:
    """`512 B`, `1.5 MiB`."""
    if count is None:
        return "unknown"
    power = 0
    while count >= 1024 and power < len(ROUND_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.0f} {ROUND_UNITS[power]}" if power == 0 or count >= 100 else f"{count:.1f} {ROUND_UNITS[power]}"


def duration_text(seconds: float | None) -> str:
    """`0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `3 d 4 h`."""
    if seconds is None:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds == 0 or seconds >= 10 else f"{seconds:.1f} s"
    hours, minutes = divmod(int(seconds // 60), 60)
    days, hours = divmod(hours, 24)
    parts = [f"{many} {unit}" for many, unit in ((days, "d"), (hours, "h"), (minutes, "min")) if many]
    return " ".join(parts[:2])


def _time(at_ms: int) -> str:
    if not at_ms:
        return "never"
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
