"""The verdict as one self-contained page for people. No scripts, nothing loaded from elsewhere.

Of a large flow those partitions are shown that lack something; the file of `--out` has all of them.
"""

from __future__ import annotations

from replicator.failover.said import (
    group_words,
    headline,
    part_words,
    state_words,
    transaction_words,
    transactions_words,
)
from replicator.failover.verdict import FailedPartition, FailoverVerdict
from replicator.pages.environment import pages_of

PARTITIONS_SHOWN, GROUPS_SHOWN, TRANSACTIONS_SHOWN = 2_000, 2_000, 1_000


def html(verdict: FailoverVerdict, *, stands: bool = True) -> str:
    """Return the page. `stands`: whether the failover was not undone since."""
    rows = sorted(verdict.partitions, key=lambda row: (row.complete, row))
    environment = pages_of("replicator.failover")
    environment.filters["words"] = group_words
    environment.filters["transaction"] = transaction_words
    environment.filters["part"] = part_words
    return environment.get_template(
        "verdict.html.j2"
    ).render(
        verdict=verdict,
        state=state_words(verdict, stands=stands),
        tone=tone(verdict),
        sign="=" if verdict.complete else "?" if not verdict.not_copied else "−",  # noqa: RUF001
        headline=headline(verdict),
        rows=[(row, *_cell(row)) for row in rows[:PARTITIONS_SHOWN]],
        rows_left=len(rows) - PARTITIONS_SHOWN,
        groups=verdict.groups[:GROUPS_SHOWN],
        groups_left=len(verdict.groups) - GROUPS_SHOWN,
        transactions_said=transactions_words(verdict),
        transactions=verdict.transactions[:TRANSACTIONS_SHOWN],
        transactions_left=len(verdict.transactions) - TRANSACTIONS_SHOWN,
    )


def tone(verdict: FailoverVerdict) -> str:
    """Say which colour: good, bad where something is known to be missing, else open."""
    if verdict.complete:
        return "good"
    return "bad" if verdict.not_copied else "open"


def _cell(row: FailedPartition) -> tuple[str, str, str]:
    """Return tone, sign and words of a partition: colours alone say nothing."""
    if row.complete:
        return "good", "=", "all that was seen"
    if row.not_copied:
        return "bad", "−", "lacks offsets"  # noqa: RUF001
    return "open", "?", "not known"
