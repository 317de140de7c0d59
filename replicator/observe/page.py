"""The status page: one self-contained page for people, made on the server. No scripts, nothing loaded from elsewhere.

It shows the same views as the metrics, bounded whatever a flow has, and changes nothing. All that comes from a cluster
is escaped twice: control characters here, HTML by jinja2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from replicator.flow.restarts import Stage
from replicator.lane.ports import Clock
from replicator.model.incident_kinds import KINDS, advice_for
from replicator.observe.shown import GRAVITY, LANES_SHOWN, SETTINGS_SHOWN, WORKERS_SHOWN, Process, ShownFlow
from replicator.observe.view import Doing
from replicator.pages.environment import pages_of
from replicator.schemas.shown import CONFLICTS_SHOWN

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
    Doing.PAUSED: ("open", "paused"),
    Doing.FAILED_OVER: ("open", "failed over"),
    Doing.GONE: ("removed", "gone"),
}
"""The same for what a partition does."""
ROUND_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class StatusPage:
    """Makes the page of one process."""

    def __init__(
        self,
        process: Process,
        flows: Callable[[], Sequence[ShownFlow]],
        clock: Clock,
        config_fault: Callable[[], str] = lambda: "",
    ) -> None:
        """`flows`: what is shown of them now. `config_fault`: as of `Endpoint`."""
        self._process, self._flows, self._clock, self._config_fault = process, flows, clock, config_fault
        environment = pages_of("replicator.observe")
        environment.filters |= {
            "number": _number,
            "bytes": size_text,
            "time": _time,
            "duration": duration_text,
        }
        self._template = environment.get_template("status.html.j2")

    def html(self) -> bytes:
        """Return the page as it is now. From any thread."""
        now_ms = self._clock.now_ms()
        return self._template.render(
            process=self._process,
            now_ms=now_ms,
            running_s=(now_ms - self._process.started_ms) / 1000,
            config_fault=self._config_fault(),
            sections=self._flows(),
            refresh_s=REFRESH_S,
            stages=STAGES,
            doings=DOINGS,
            gravity=GRAVITY,
            kinds=KINDS,
            advice_for=advice_for,
            stopped=Doing.STOPPED,
            lanes_shown=LANES_SHOWN,
            workers_shown=WORKERS_SHOWN,
            settings_shown=SETTINGS_SHOWN,
            conflicts_shown=CONFLICTS_SHOWN,
        ).encode()


def _number(value: float | None) -> str:
    """Write a number with commas; a fraction only of small numbers."""
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"


def size_text(count: float | None) -> str:
    """Write a size as in `512 B`, `1.5 MiB`."""
    if count is None:
        return "unknown"
    power = 0
    while count >= 1024 and power < len(ROUND_UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.0f} {ROUND_UNITS[power]}" if power == 0 or count >= 100 else f"{count:.1f} {ROUND_UNITS[power]}"


def duration_text(seconds: float | None) -> str:
    """Write a duration as in `0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `3 d 4 h`."""
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
