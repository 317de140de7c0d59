"""What to do about each kind of finding: repair, decide, or nothing. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from replicator.proof import verdicts
from replicator.proof.outcome import DIFFERS, Outcome

Action = Literal["repair", "decide", "run again", "wait", "ignore"]


@dataclass(frozen=True, slots=True)
class Step:
    """About so many records (`kind` is their verdict), or so many partitions, where `of` says so."""

    action: Action
    kind: str
    count: int
    of: Literal["records", "partitions"]
    text: str


_STAYS = "A Kafka log can only be appended to, so this can't be repaired in place"
_TEXTS: dict[str, tuple[Action, str]] = {
    verdicts.MISSING: (
        "repair",
        "Run the same command with --repair plan, which changes nothing, then with --repair apply (and another --out). "
        "The records are copied from the source again, as long as it has them; into a compacted topic only those that "
        "no later record of their key has superseded, or an old value would bury a new one",
    ),
    verdicts.ALTERED: (
        "decide",
        "Look at the fields side by side to find out what rewrites records: another producer, a proxy, a topic config "
        f"such as message.timestamp.type. {_STAYS}; copy the topic by another flow to a new target topic",
    ),
    verdicts.EXTRA: (
        "decide",
        "Somebody else writes into the target topic: find out who has the right to, and take it away. "
        f"{_STAYS}; either readers can live with these records, or copy the topic to a new target topic. A partition "
        "that has stopped for them goes on after eos-replicate position set: incident show has the command",
    ),
    verdicts.DOUBLED: (
        "decide",
        "Look whether somebody else copies the topic, whether this flow once ran with at_least_once, or whether an "
        "earlier repair of this flow copied them again (the claims topic has an entry for each of its transactions). "
        f"{_STAYS}; either readers can live with these records, or copy the topic to a new target topic",
    ),
    verdicts.REORDERED: (
        "decide",
        "After a repair this is to be expected: what was copied again stands after all others. Otherwise decide "
        f"whether readers depend on the order. {_STAYS}; copy the topic to a new target topic",
    ),
    DIFFERS: ("run again", "Run the same command without --quick: it names the records"),
    verdicts.UNPROVEN: (
        "decide",
        "Read the reasons. Where another copy of these records exists, compare with it. If the reasons are those that "
        "you expect, --accept unproven makes the exit code 0 as long as there is no difference",
    ),
    verdicts.EXPIRED: ("ignore", "Retention or DeleteRecords removed them from the target after they were copied"),
    verdicts.NEVER_MINE: ("ignore", "Retention or DeleteRecords removed them from the source after they were copied"),
    verdicts.COMPACTED: ("ignore", "Log compaction did what the target topic's configs say"),
    verdicts.COMPACTED_SOURCE: ("ignore", "Log compaction did what the source topic's configs say"),
}
_LOCAL = {
    verdicts.UNPROVEN: "Read the reasons. Of what the offset map doesn't cover eos-replicate reconcile without --local "
    "compares contents. If the reasons are those that you expect, --accept unproven makes the exit code 0 as long as "
    "there is no difference",
}
_WINDOW = (
    "Run it without --from and --to, to see whether they stand outside the window. If they are missing there, too: "
)
_COPIED = "They were copied again. Run reconcile without --repair to see what is left"
_SETTLED = (
    "of them were copied again; the others stand on the target by now, or a later record of their key does. Run "
    "reconcile without --repair to see what is left"
)
_DONE = ("copied", "copied_before", "standing", "superseded")
"""What has become of missing records, in the rows of a repair's report."""
COUNTS, CHUNKS = "counts", "chunks"
NOT_COMPARED, NOT_BEGUN, LAG = "not_compared", "not_begun", "lag"


def next_steps(outcome: Outcome) -> tuple[Step, ...]:
    """Return one step for each kind of finding that there is, those that need somebody first."""
    totals = outcome.totals()
    steps = [_step(outcome, kind, totals[kind]) for kind in _TEXTS if totals.get(kind)]
    partitions = (
        ("decide", COUNTS, sum(not partition.counts_agree for partition in outcome.partitions), _COUNTS),
        ("run again", CHUNKS, sum(partition.chunks_unexplained for partition in outcome.partitions), _CHUNKS),
        ("decide", NOT_COMPARED, len(outcome.not_compared), "Follow the advice that is given for each of them"),
        ("wait", NOT_BEGUN, len(outcome.to_begin), "Run the flow; they are compared once it has a position there"),
        ("wait", LAG, sum(partition.lag > 0 for partition in outcome.partitions), _LAG),
    )
    steps += [Step(action, kind, count, "partitions", text) for action, kind, count, text in partitions if count]  # type: ignore[arg-type]
    order: tuple[Action, ...] = ("repair", "decide", "run again", "wait", "ignore")
    return tuple(sorted(steps, key=lambda step: order.index(step.action)))


_COUNTS = (
    "Missing, extra or doubled records explain it where there are as many; otherwise somebody has changed the position "
    "or the log"
)
_CHUNKS = "Digests differ, but no record does: the log changed while it was read"
_LAG = (
    "Records after the positions were not compared. A flow that runs copies them, unless an incident has stopped the "
    "partition: eos-replicate status shows that, and the lag"
)


def _step(outcome: Outcome, kind: str, records: int) -> Step:
    action, text = _TEXTS[kind]
    if outcome.mode == "local" and kind in _LOCAL:
        text = _LOCAL[kind]
    elif kind == verdicts.MISSING:
        if outcome.repair is not None and outcome.repair["applied"]:
            rows = outcome.repair["partitions"]
            copied, settled = (sum(row[name] or 0 for row in rows for name in names) for names in (_DONE[:1], _DONE))
            action, text = ("repair", f"{copied:,} {_AGAIN}")
            if settled == records:
                action, text = "run again", _COPIED if copied == records else f"{copied:,} {_SETTLED}"
        elif outcome.windowed:
            text = _WINDOW + text
    return Step(action, kind, records, "records", text)


_AGAIN = (
    "of them were copied again; the table of the repair says what stopped the others. " + _TEXTS[verdicts.MISSING][1]
)
