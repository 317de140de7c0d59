"""Histories (`tests.replicator.spark.reconcile.histories`) as partitions that `seeded_logs` writes to brokers. Pure.

The seed draws how both logs are written, too: in which transactions and codecs, with how many aborted records between,
and how many records retention has removed from the beginning of either log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from integration_tests.spark.planted import Content
from integration_tests.spark.seeded import SHAPES, Entry, Seeded, steps
from replicator.config import Delivery
from tests.replicator.spark.reconcile import drawn as lists
from tests.replicator.spark.reconcile.histories import drawn_history

CUT = 0.25
"""So often records were removed from the beginning of a log."""


def drawn(seed: int, now_ms: int) -> Seeded:
    """The partition of this seed.

    Args:
        now_ms: as of `seeded.drawn`; no record is as late.
    """
    history, draw = drawn_history(seed), random.Random(-1 - seed)
    source, target = _entries(history.source), _entries(history.target)
    return Seeded(
        seed=seed,
        shape=SHAPES[0],
        records=tuple(entry.content for entry in source),
        source=steps(draw, source, now_ms, alone=False),
        target=steps(draw, target, now_ms, alone=False),
        source_cut=_cut(draw, source),
        target_cut=_cut(draw, target),
        has_position=True,
        past_markers=draw.random() < 0.5,
        delivery=Delivery.EXACTLY_ONCE.value,
    )


def _entries(side: Sequence[lists.Content]) -> list[Entry]:
    return [Entry(Content(one.key, one.value, one.ms), one.number if one.number >= 0 else None, "copy") for one in side]


def _cut(draw: random.Random, entries: Sequence[Entry]) -> int:
    """How many records are removed from the beginning of a log."""
    return draw.randint(1, len(entries)) if entries and draw.random() < CUT else 0
