"""`eos-replicate translate`: where does a consumer go on at the other side?"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import (
    config_option,
    console_for_people,
    json_option,
    one,
    patience_ms,
    print_json,
    print_wrapped,
    say,
    time_ms,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from replicator.config import Flow
    from replicator.translation.answers import OffsetAnswer, OffsetToTranslate
    from replicator.translation.partition_maps import Side

EPILOG = """\b
Examples:
  eos-replicate translate -c flows.yaml --topic orders \\
      --partition 0 --offset 1042
  eos-replicate translate -c flows.yaml --group billing --csv > billing.csv
  eos-replicate translate -c flows.yaml --time 2026-01-31T12:00:00Z
  eos-replicate translate -c flows.yaml --file offsets.csv --reverse
  eos-replicate translate -c flows.yaml --checkpoint old --out new

A consumer that goes on at the answered offset skips no record. "again" says how many it reads a second time: none,
unless a repair has copied records behind later ones. Kafka's own tool takes the output of --csv:

\b
  kafka-consumer-groups --bootstrap-server TARGET --group billing \\
      --reset-offsets --from-file billing.csv --execute

\b
Exit codes:
  0    each offset has a translation
  1    one or more have none: before the map began, or not copied;
       --checkpoint: one or more aren't exact, and nothing was written
  2    the flow file or the command line is wrong; the flow has no map
  3    a cluster cannot be reached, or a right is missing
  4    the map is gone, or written by a newer version
  130  interrupted
"""
ROWS_SHOWN = 100


@click.command(epilog=EPILOG)
@config_option
@click.option("--flow", "name", metavar="NAME", help="The flow; may be left out when the file has one.")
@click.option("--topic", metavar="NAME", help="Topic of the side that is asked about, with --partition and --offset.")
@click.option("--partition", type=click.IntRange(min=0), metavar="NUMBER", help="Its partition.")
@click.option("--offset", type=click.IntRange(min=0), metavar="OFFSET", help="The next offset to be consumed.")
@click.option("--group", metavar="GROUP", help="All offsets that this consumer group has committed.")
@click.option("--time", "at", metavar="TIME", help="The first records at or after this time, with zone.")
@click.option("--file", "file", metavar="FILE", help="Offsets from a file, CSV or JSON; - for standard input.")
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The checkpoint of a Structured Streaming query; --out is its new one.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="A new directory, with --checkpoint.")
@click.option("--reverse", is_flag=True, help="From target to source; topics, group and time are the target's.")
@click.option("--csv", "as_csv", is_flag=True, help="Print topic,partition,offset for Kafka's tools.")
@json_option
def translate(
    path: Path,
    name: str | None,
    topic: str | None,
    partition: int | None,
    offset: int | None,
    group: str | None,
    at: str | None,
    file: str | None,
    checkpoint: Path | None,
    out: Path | None,
    reverse: bool,
    as_csv: bool,
    as_json: bool,
) -> int:
    """Translate offsets between a flow's source and target, by its offset map.

    It may be asked while the flow runs. Nothing is changed on either side.
    """
    from replicator import config
    from replicator.proof import map_place
    from replicator.translation import offset_files, stream_checkpoint
    from replicator.translation.translate import translator

    single = _single(topic, partition, offset)
    _one_question(single=single, group=group, at=at, file=file, checkpoint=checkpoint)
    if (checkpoint is None) != (out is None):
        raise click.UsageError("--checkpoint and --out belong together")
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    since_ms = time_ms("--time", at)
    flow = one(config.load(path, os.environ), path, name)
    map_place.refuse_delivery(flow)
    side: Side = "target" if reverse else "source"
    stored = None
    if single is not None:
        asked = [single]
    elif file is not None:
        asked = offset_files.read_offsets(*_text(file))
    elif checkpoint is not None:
        stored = stream_checkpoint.read_checkpoint(checkpoint)
        asked = stored.offsets
    else:
        asked = _looked_up(flow, side, group, since_ms)
    reader = translator(flow, side, connect_timeout_ms=patience_ms(flow))
    answers = reader.answers(asked)
    exact = all(it.exact for it in answers)
    if stored is not None and out is not None and exact:
        stream_checkpoint.write_checkpoint(stored, out, dict(zip(asked, answers, strict=True)))
    if as_json:
        print_json({"flow": flow.name, "reverse": reverse, "offsets": [it.as_json() for it in answers]})
    elif as_csv:
        click.echo(offset_files.as_csv(answers), nl=False)
        for line in _untold(answers):
            say(line, err=True)
    else:
        show(console_for_people(), answers)
    if stored is not None and not exact:
        say("error: nothing was written: not each offset has an exact translation", err=True)
        return 1
    return 1 if any(it.offset is None for it in answers) else 0


def _single(topic: str | None, partition: int | None, offset: int | None) -> OffsetToTranslate | None:
    from replicator.model.partition import Partition
    from replicator.translation.answers import OffsetToTranslate

    if topic is None and partition is None and offset is None:
        return None
    if topic is None or partition is None or offset is None:
        raise click.UsageError("--topic, --partition and --offset belong together")
    return OffsetToTranslate(Partition(topic, partition), offset)


def _one_question(**given: object) -> None:
    if sum(value is not None for value in given.values()) != 1:
        others = "--group, --time, --file, --checkpoint"
        raise click.UsageError(f"give one of --topic with --partition and --offset, {others}")


def _text(file: str) -> tuple[str, str]:
    from replicator.model.errors import ConfigError

    try:
        return (file, Path(file).read_text()) if file != "-" else ("standard input", sys.stdin.read())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--file {file}: {error}") from error


def _looked_up(flow: Flow, side: Side, group: str | None, since_ms: int | None) -> list[OffsetToTranslate]:
    """Look up the offsets of a group or of a time. Raises ConfigError for a group without any."""
    from replicator.model.errors import ConfigError
    from replicator.translation.translate import group_offsets, time_offsets

    if group is None:
        assert since_ms is not None
        return time_offsets(flow, side, since_ms)
    found = group_offsets(flow, side, group)
    if not found:
        cluster = flow.source if side == "source" else flow.target
        raise ConfigError(f"group {group} has no offset in the flow's topics on cluster {cluster.name!r}")
    return found


def _untold(answers: Sequence[OffsetAnswer]) -> list[str]:
    from replicator.translation.answers import sentences

    return [f"{it.asked.at} {it.asked.offset}: {'; '.join(sentences(it))}" for it in answers if it.offset is None]


def show(console: Console, answers: Sequence[OffsetAnswer]) -> None:
    """Show a table of the answers, and a line about each that isn't exact."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    from replicator.model.printable import printable
    from replicator.translation.answers import sentences

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("from", overflow="fold")
    table.add_column("offset", justify="right", no_wrap=True)
    table.add_column("to", overflow="fold")
    table.add_column("offset", justify="right", no_wrap=True)
    table.add_column("again", justify="right", no_wrap=True)
    for it in answers[:ROWS_SHOWN]:
        place = "-" if it.offset is None else str(it.offset)
        again = "?" if it.translated.again is None else str(it.translated.again)
        table.add_row(escape(str(it.asked.at)), str(it.asked.offset), escape(str(it.at)), place, again)
    console.print(table)
    for it in answers[:ROWS_SHOWN]:
        for line in sentences(it):
            print_wrapped(console, printable(f"{it.asked.at} {it.asked.offset}: {line}"))
    if len(answers) > ROWS_SHOWN:
        console.print(f"  and {len(answers) - ROWS_SHOWN} more; --csv and --json have all of them")
    exact, without = sum(it.exact for it in answers), sum(it.offset is None for it in answers)
    others = len(answers) - exact - without
    said = [f"{exact} exact", f"{others} with a note", f"{without} without a translation"]
    console.print(", ".join(text for text in said if not text.startswith("0 ")))
