"""`eos-replicate coupled`: topics of a flow that transactions tie together."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cli.options import ask_each, asked_flows, console_for_people, flow_options, print_found, print_wrapped, show_failed

if TYPE_CHECKING:
    from rich.console import Console

    from replicator.coupling.evidence import TransactionalWriter
    from replicator.inspect.coupled_topics import CoupledTopics

EPILOG = """\b
Examples:
  eos-replicate coupled -c flows.yaml
  eos-replicate coupled -c flows.yaml --flow orders
  eos-replicate coupled -c flows.yaml --json

\b
Exit codes:
  0  the coupled sets of topics are shown, and nothing was hidden
  1  something couldn't be seen; it is named, and may couple more topics
  2  the flow file is wrong
  3  the source cannot be reached
"""
WRITERS_SHOWN, TOPICS_SHOWN = 20, 20


@click.command(epilog=EPILOG)
@flow_options()
def coupled(path: Path, names: tuple[str, ...], as_json: bool) -> int:
    """Show which topics of a flow are tied together by transactions at the source.

    A transactional producer ties the topics to which it writes, and an application that reads, writes and commits its
    group's offsets in transactions ties the topics that it reads to them, too. Such topics are consistent with each
    other only as a whole: move consumers of all of them, or of none. Topics that the flow doesn't copy are marked.

    Brokers forget producers some time after their last record; earlier transactions are read from the logs of
    the coordinators, if the user may read these.
    """
    from replicator.inspect import coupled_topics

    found, failed = ask_each(asked_flows(path, names), coupled_topics.look)
    if as_json:
        print_found([it.as_json() for it in found.values()], failed)
    else:
        console = console_for_people()
        for it in found.values():
            _show(console, it)
    show_failed(failed)
    return max((error.exit_code for error in failed.values()), default=int(any(it.unseen for it in found.values())))


def _show(console: Console, found: CoupledTopics) -> None:
    from rich.markup import escape

    from replicator.model.counting import counted

    console.print(f"[bold]{escape(found.flow)}[/]: {counted(len(found.sets), 'coupled set')} of topics")
    for it in found.sets:
        print_wrapped(console, f"  {topics_said(it.topics, it.outside)}")
        if it.groups:
            print_wrapped(console, f"    groups: {_listed(it.groups)}")
        for writer in it.writers[:WRITERS_SHOWN]:
            print_wrapped(console, f"    {_writer_said(writer)}")
        if len(it.writers) > WRITERS_SHOWN:
            console.print(f"    and {len(it.writers) - WRITERS_SHOWN:,} more producers; --json has all of them")
    if found.unseen:
        console.print("  not known:")
    for why in found.unseen:
        print_wrapped(console, f"    {why}")


def topics_said(topics: Sequence[str], outside: Collection[str]) -> str:
    """List the topics of a set in one line; those that the flow doesn't copy are marked."""
    return _listed([f"{topic} (not copied)" if topic in outside else topic for topic in topics])


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - TOPICS_SHOWN:,} more" if len(names) > TOPICS_SHOWN else ""
    return ", ".join(names[:TOPICS_SHOWN]) + more


def _writer_said(writer: TransactionalWriter) -> str:
    said = [f"writes {_listed(sorted(writer.writes))}"] if writer.writes else []
    for group, topics in sorted(writer.reads.items()):
        said.append(f"reads {_listed(sorted(topics))} for group {group}")
    if writer.commits_offsets and not writer.reads:
        said.append("commits offsets of a group that isn't known")
    last_ms = max((it.when_ms for seen in (writer.writes, *writer.reads.values()) for it in seen.values()), default=-1)
    if last_ms >= 0:
        said.append(f"last at {datetime.fromtimestamp(last_ms / 1000, UTC).strftime('%Y-%m-%d %H:%M:%S UTC')}")
    return f"{writer.name}: {'; '.join(said)}"
