"""What `top` shows, as rich draws it: for 80 columns and more, and no more lines than the terminal has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.containers import Lines
from rich.table import Table
from rich.text import Text

from cli.commands.status import said_of
from replicator.model.counting import counted
from replicator.model.printable import printable
from replicator.state.run_settings import Paused, RateLimit

COLOURS = {
    "copying": "green",
    "waiting": "yellow",
    "undecided": "yellow",
    "stopped": "red",
    "paused": "cyan",
    "failed_over": "cyan",
    "gone": "dim",
}
STAGES = {"running": "green", "starting": "yellow"}
WIDE = 110
"""From so many columns on, the column of states is wider."""
ROWS_MAX = 200
INDENT = 6
"""Of what goes on in another line, as `status` has it."""
UNITS = ("B", "KiB", "MiB", "GiB")


def shown(found: Mapping[str, Any], width: int, height: int | None = None) -> RenderableType:
    """Draw an answer of the process. `height`: lines of the terminal, shared by the flows; None: all rows."""
    process, flows = found["process"], found["flows"]
    since = f"{datetime.fromtimestamp(process['started_ms'] / 1000, UTC):%Y-%m-%d %H:%M} UTC"
    heading = Text(
        f"eos-replicate {process['version']} on {printable(process['host'])}, process {process['pid']}, since {since}",
        style="dim",
        overflow="ellipsis",
        no_wrap=True,
    )
    # A flow has three lines above its topics, one for their heading, and one for what is left out of each list.
    fault = list(_fault(found.get("config_fault"), whole=height is None))
    rows = ROWS_MAX if height is None else max(1, (height - 2 - len(fault)) // max(1, len(flows)) - 7)
    return Group(heading, *fault, *(part for flow in flows for part in _flow(flow, width, rows, whole=height is None)))


def _fault(found: str | None, *, whole: bool) -> Iterator[Text]:
    """Say why the process goes on with older settings. One of an older version says nothing of it."""
    if found:
        yield _line(f"older settings: the flow file could not be read again: {printable(found)}", "red", whole=whole)


def unreachable(why: str) -> RenderableType:
    """Draw that nothing is known."""
    return Text(f"{why}\nIt is asked again; ^C ends this.", style="red")


def _flow(flow: Mapping[str, Any], width: int, rows: int, *, whole: bool) -> list[RenderableType]:
    schemas = list(_schemas(flow.get("schemas"), max(1, rows // 4), whole=whole))
    conditions = list(_conditions(flow, whole=whole))
    settings = list(_settings(flow, max(1, rows // 4), whole=whole))
    rows = max(1, rows - len(schemas) - len(conditions) - len(settings))
    kept = flow["not_copied"][: rows if not flow["topics"] else max(1, rows // 2)]
    topics = flow["topics"][: max(1, rows - len(kept))]
    parts: list[RenderableType] = [_headline(flow), *conditions, Text("  ") + _counts(flow["partitions"])]
    parts += [_totals(flow), *settings, *schemas, _topics(topics, width)]
    if flow["topic_count"] > len(topics):
        more = counted(flow["topic_count"] - len(topics), "more topic")
        parts.append(Text(f"  … and {more}", style="dim"))
    parts += [_kept(each, whole=whole) for each in kept]
    if flow["not_copied_count"] > len(kept):
        more = counted(flow["not_copied_count"] - len(kept), "more that is not copied", "more that are not copied")
        parts.append(Text(f"  … and {more}", style="dim"))
    return parts


def _headline(flow: Mapping[str, Any]) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(printable(flow["name"]), style="bold")
    line.append(f": {printable(flow['source'])} → {printable(flow['target'])} ")
    line.append(flow["stage"], style=STAGES.get(flow["stage"], "red"))
    return line


def _conditions(flow: Mapping[str, Any], *, whole: bool) -> Iterator[Text]:
    """Say what keeps the whole flow from copying as its file says. A process of an older version says nothing of it."""
    if flow.get("cause"):
        yield _line(f"  it has ended by: {printable(flow['cause'])}", "red", whole=whole)
    for cluster, since_ms in sorted(flow.get("unreachable_since_ms", {}).items()):
        since = f"{datetime.fromtimestamp(since_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
        yield _line(f"  no broker of {printable(cluster)} has answered since {since}", "red", whole=whole)
    if flow.get("failed_over"):
        yield _line(f"  {printable(flow['failed_over'])}", "cyan", whole=whole)
    if flow.get("being_failed_over"):
        yield _line(f"  {printable(flow['being_failed_over'])}", "yellow", whole=whole)
    if flow.get("other_settings"):
        yield _line(f"  other settings: {printable(flow['other_settings'])}", "yellow", whole=whole)


def _settings(flow: Mapping[str, Any], rows: int, *, whole: bool) -> Iterator[Text]:
    """Say what operators have paused and limited, at most `rows` lines. A process of an older version says nothing of
    it."""
    paused = {at: Paused(**it) for at, it in flow.get("paused", {}).items()}
    rates = {at: RateLimit(**it) for at, it in flow.get("rates", {}).items()}
    lines = said_of(paused, rates, flow.get("taken_out", ()))[:rows]
    for line in lines:
        yield _line(f"  {printable(line)}", "cyan", whole=whole)
    if (more := flow.get("paused_count", 0) + flow.get("rate_count", 0) - len(lines)) > 0:
        yield Text(f"  … and {more:,} more that are paused or limited", style="dim")


class Line(Text):
    """A line that is cut off where the terminal ends, or, where it is `whole`, goes on in others that are indented."""

    def __init__(self, text: str, style: str = "", *, whole: bool) -> None:
        """`style` as of rich."""
        super().__init__(text, style=style, no_wrap=not whole, overflow="fold" if whole else "ellipsis")

    def wrap(self, console: Console, width: int, *args: Any, **more: Any) -> Lines:
        """See `Text.wrap`."""
        lines = super().wrap(console, width, *args, **more)
        if len(lines) < 2:
            return lines
        first, left = lines[0], self[len(lines[0]) :]
        left = left[len(left) - len(left.plain.lstrip()) :]
        others = left.wrap(console, max(1, width - INDENT), *args, **more)
        for line in others:
            line.pad_left(INDENT)
        return Lines([first, *others])


def _line(text: str, style: str = "", *, whole: bool) -> Line:
    return Line(text, style, whole=whole)


def _counts(counts: Mapping[str, int]) -> Text:
    line = Text()
    for number, (state, count) in enumerate(counts.items()):
        line.append(", " if number else "")
        line.append(f"{count:,} {state}", style=COLOURS[state])
    return line


def _totals(flow: Mapping[str, Any]) -> Text:
    end_to_end = "" if flow["end_to_end_s"] is None else f", end to end {flow['end_to_end_s']:.3f} s"
    return Text(
        f"  {number(flow['records_per_s'])} records/s, {size(flow['bytes_per_s'])}/s, lag "
        f"{number(flow['lag_records'])} records, {seconds(flow['lag_seconds'])}{end_to_end}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _schemas(found: Mapping[str, Any] | None, rows: int, *, whole: bool) -> Iterator[Text]:
    """Say where schemas stand, if the process keeps any at the target; at most `rows` conflicts."""
    if found is None:
        return
    line = _line("", whole=whole)
    line.append(f"  schemas of {counted(found['subjects'], 'subject')}: ")
    line.append(f"{found['in_sync']:,} in sync", style="green")
    for word, colour in (("waiting", "yellow"), ("refused", "red")):
        if found[word]:
            line.append(f", {found[word]:,} {word}", style=colour)
    if found["reason"] and not found["conflicts"]:
        line.append(f"; {printable(found['reason'])}", style="yellow")
    yield line
    for each in found["conflicts"][:rows]:
        line = _line(f"  {printable(each['subject'])} version {each['version']} (id {each['id']}) ", whole=whole)
        line.append("refused", style="red")
        yield line.append(f": {printable(each['reason'])}")
    if found["conflict_count"] > rows:
        yield Text(f"  … and {found['conflict_count'] - rows:,} more that can't go over", style="dim")


def _topics(topics: list[Mapping[str, Any]], width: int) -> Table:
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim", expand=True)
    table.add_column("  topic", overflow="fold", ratio=1)
    for heading, least in (("lag", 10), ("seconds", 8), ("records", 12)):
        table.add_column(heading, justify="right", no_wrap=True, min_width=least)
    least, most = (24, 31) if width < WIDE else (48, 70)  # what is cut off is what matters least
    table.add_column("partitions", min_width=least, max_width=most, no_wrap=True, overflow="ellipsis")
    for row in topics:
        table.add_row(
            Text(f"  {printable(row['name'])}"),
            number(row["lag_records"]),
            seconds(row["lag_seconds"]),
            number(row["records"]),
            _counts(row["counts"]),
        )
    return table


def _kept(each: Mapping[str, Any], *, whole: bool) -> Text:
    line = _line(f"  {printable(each['topic'])}[{each['partition']}] ", whole=whole)
    line.append(each["state"], style=COLOURS[each["state"]])
    if each["kind"] not in ("", each["state"]):
        line.append(f" {each['kind']}", style="bold")
    if each["position"] is not None:
        line.append(f" at {each['position']:,}")
    if each["detail"]:
        line.append(f": {printable(each['detail'])}")
    return line


def number(value: float | None) -> str:
    """Write a number as in `1,234`; `?` where it isn't known."""
    return "?" if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    """Write seconds as in `0.4 s`; `?` where it isn't known."""
    if value is None:
        return "?"
    return f"{value:,.0f} s" if value == 0 or value >= 10 else f"{value:.1f} s"


def size(count: float | None) -> str:
    """Write a size as in `52.2 KiB`; `?` where it isn't known."""
    if count is None:
        return "?"
    power = 0
    while count >= 1024 and power < len(UNITS) - 1:
        count, power = count / 1024, power + 1
    return f"{count:,.0f} {UNITS[power]}" if power == 0 or count >= 100 else f"{count:.1f} {UNITS[power]}"
