"""`eos-replicate log`: shows the content of the embedded broker's files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from cli.suggesting import SuggestingGroup

DAMAGED = 1


@click.group(
    cls=SuggestingGroup,
    epilog="""\b
Examples:
  eos-replicate log dump /tmp/kafka
""",
)
def log() -> None:
    """Show the content of the embedded broker's files."""


@log.command(
    epilog="""\b
Examples:
  eos-replicate log dump /tmp/kafka
  eos-replicate log dump --records \\
      /tmp/kafka/partitions/4f0c0c6e1d6b4a0f8d5b8d9f0a6f3be1-0
  eos-replicate log dump --json /tmp/kafka | jq 'select(.event == "damage")'

Changes nothing; the broker may be running. A torn end is no damage: it was being written when the broker died, and
the next start truncates it.

\b
Exit codes:
  0  nothing is damaged
  1  something is damaged
  2  the path is not of a broker
""",
    short_help="Print batches, markers, states and damage of a data directory.",
)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--records", is_flag=True, help="Show the records, too; of the internal topics with their meaning.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def dump(path: Path, records: bool, as_json: bool) -> int:
    """Print the content of a data directory, a partition's directory or a segment.

    Shows batches, markers, the state of transactions, and where something is damaged.
    """
    from embedded_broker.storage.dump import NothingThere
    from embedded_broker.storage.dump import dump as events

    damaged = False
    try:
        for event in events(path, records):
            damaged |= event["event"] == "damage"
            click.echo(json.dumps(event) if as_json else LINES[event["event"]](event))
    except NothingThere as error:
        raise click.UsageError(str(error)) from error
    return DAMAGED if damaged else 0


def _partition(event: dict[str, Any]) -> str:
    name = f"{event['topic'] or '(unknown topic)'}-{event['partition']}"
    at = "none" if event["checkpoint"] is None else event["checkpoint"]
    return (
        f"{name}  {event['path']}\n  log start {event['log_start']}, durable {event['durable']}, "
        f"compacted {event['compacted']}, checkpoint {at}"
    )


def _segment(event: dict[str, Any]) -> str:
    return f"  segment {Path(event['path']).name}: {event['size_bytes']} bytes, index {event['index']}"


def _batch(event: dict[str, Any]) -> str:
    what = f"{event['marker']} marker" if event["marker"] else f"{event['records']} records"
    parts = [
        f"    {event['base_offset']}..{event['last_offset']}  byte {event['at']}, {event['size_bytes']} bytes",
        what,
    ]
    if event["compression"] != "none":
        parts.append(event["compression"])
    if event["producer_id"] >= 0:
        kind = "transaction of producer" if event["transactional"] else "producer"
        parts.append(f"{kind} {event['producer_id']} epoch {event['producer_epoch']}")
    if event["base_sequence"] >= 0:
        parts.append(f"sequence {event['base_sequence']}")
    if event["delete_horizon_ms"] is not None:
        parts.append(f"kept until {_time(event['delete_horizon_ms'])}")
    return ", ".join([*parts, f"leader epoch {event['leader_epoch']}", _time(event["max_timestamp_ms"])])


def _record(event: dict[str, Any]) -> str:
    if event.get("means") is not None:
        return f"      {event['offset']}  {json.dumps(event['means'])}"
    headers = "".join(f"  {name}: {value}" for name, value in event["headers"])
    return f"      {event['offset']}  {_shown(event['key'])} = {_shown(event['value'])}{headers}"


def _shown(text: str | None) -> str:
    return "null" if text is None else repr(text)


def _wrong(event: dict[str, Any]) -> str:
    name = "DAMAGED" if event["event"] == "damage" else "torn end"
    return f"    {name}: {event['path']} at byte {event['at']}, offset {event['offset']}: {event['why']}"


def _state(event: dict[str, Any]) -> str:
    lines = [f"  end {event['end']}, {len(event['producers'])} producers"]
    lines += [f"  open transaction of producer {e['producer_id']} since {e['first_offset']}"
              for e in event["open_transactions"]]  # fmt: skip
    lines += [f"  aborted transaction of producer {e['producer_id']}: {e['first_offset']}..{e['marker_offset']}"
              for e in event["aborted_transactions"]]  # fmt: skip
    return "\n".join(lines)


def _time(timestamp_ms: int) -> str:
    if not 0 <= timestamp_ms < 253_402_300_800_000:
        return f"time {timestamp_ms}"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


LINES = {
    "partition": _partition, "segment": _segment, "batch": _batch, "record": _record, "damage": _wrong, "torn": _wrong,
    "state": _state,
}  # fmt: skip
