"""A failover's verdict for people, and its files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cli.options import print_wrapped
from replicator.failover.said import (
    group_words,
    headline,
    looked_words,
    part_words,
    state_words,
    transaction_words,
    transactions_words,
)
from replicator.model.counting import counted
from replicator.model.errors import ConfigError
from replicator.model.printable import printable

if TYPE_CHECKING:
    from replicator.failover.hook_runner import HookCheck
    from replicator.failover.verdict import FailoverVerdict

ROWS_SHOWN = 50


def write_json(out: Path, verdict: FailoverVerdict) -> None:
    """Write the verdict for machines. Raises ConfigError where the file can't be written."""
    write_whole(out, json.dumps(verdict.as_json(), indent=2) + "\n")


def write_page(out: Path, verdict: FailoverVerdict, *, stands: bool) -> None:
    """Write the verdict as a page. Raises ConfigError where the file can't be written."""
    from replicator.failover.page import html

    write_whole(out, html(verdict, stands=stands))


def check_file(out: Path) -> None:
    """Look whether a file can be written, before anything is done. Raises ConfigError."""
    real = out.resolve()
    if real.exists() and not real.is_file():
        raise ConfigError(f"{out} can't be written: it is no file")
    if not real.parent.is_dir() or not os.access(real.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{out} can't be written: {real.parent} is no directory that can be written to")


def write_whole(out: Path, text: str) -> None:
    """Write a file as a whole or not at all; what a link names is written. Raises ConfigError where it can't be."""
    check_file(out)
    out = out.resolve()
    draft = out.with_name(f".eos-replicate.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(out)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError(f"{out} can't be written: {error.strerror}") from error


def show(console: Console, verdict: FailoverVerdict, *, stands: bool = True) -> None:
    """Show the verdict for people: first what is lacking. `stands`: whether the failover was not undone since."""
    state = state_words(verdict, stands=stands)
    heading = f"{verdict.flow}: {verdict.source} → {verdict.target}, {state}"
    print_wrapped(console, printable(heading), bold=printable(verdict.flow))
    print_wrapped(console, printable(looked_words(verdict)))
    lacking = [it for it in verdict.partitions if not it.complete]
    print_wrapped(console, headline(verdict))
    if lacking:
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("source partition", overflow="fold")
        for heading in ("copied up to", "source ended at", "not copied, at least"):
            table.add_column(heading, justify="right")
        for it in lacking[:ROWS_SHOWN]:
            numbers = (it.position, it.end_seen, it.not_copied)
            table.add_row(escape(str(it.source)), *("-" if each is None else f"{each:,}" for each in numbers))
        console.print(table)
        if len(lacking) > ROWS_SHOWN:
            console.print(f"and {len(lacking) - ROWS_SHOWN:,} more; --json and --out have all of them")
    for row in verdict.partitions:
        if row.problem:
            print_wrapped(console, f"  {row.source}: {printable(row.problem)}")
    print_wrapped(console, printable(transactions_words(verdict)))
    for transaction in verdict.transactions[:ROWS_SHOWN]:
        known = "half copied" if transaction.certain else "not known"
        print_wrapped(console, f"  {known}: {printable(transaction_words(transaction))}")
        for part in transaction.parts:
            print_wrapped(console, f"    {part.at}: {part_words(part)}")
    if len(verdict.transactions) > ROWS_SHOWN:
        console.print(f"and {len(verdict.transactions) - ROWS_SHOWN:,} more; --json and --out have all of them")
    if verdict.groups:
        console.print(f"{counted(len(verdict.groups), 'consumer group')} at the target:")
    for group in verdict.groups[:ROWS_SHOWN]:
        print_wrapped(console, f"  {printable(group.group)}: {group_words(group)}")
    console.print(f"sha256 {verdict.digest}", soft_wrap=True)


def show_hooks(console: Console, checks: Sequence[HookCheck]) -> None:
    """Show which hooks would run, and whether they can."""
    for it in checks:
        command = " ".join(printable(word) for word in it.command)
        wrong = f": {printable(it.problem)}" if it.problem else ""
        print_wrapped(console, f"hook {it.hook} would run {command}{wrong}")
