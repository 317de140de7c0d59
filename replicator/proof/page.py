"""report.html: one self-contained page for people. No scripts, nothing loaded from elsewhere.

What is shown of a large result is bounded, and says how much more there is and where. Everything that comes from a
cluster is escaped twice: control characters here, HTML by jinja2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from replicator.model.counting import counted
from replicator.pages.environment import pages_of
from replicator.proof import headline, verdicts
from replicator.proof.excerpts import text_of
from replicator.proof.headline import MEANINGS, TITLES, label
from replicator.proof.next_steps import COUNTS, LAG, NOT_BEGUN, NOT_COMPARED, Step, next_steps
from replicator.proof.outcome import BUCKETS, DIFFERS, Outcome, PartitionOutcome

ROWS_SHOWN, SECTIONS_SHOWN = 500, 100
"""Rows of the table of partitions, and partitions whose findings are shown."""
SYMBOLS = {
    verdicts.SAME: "=",
    verdicts.MISSING: "−",  # noqa: RUF001  a minus sign is as wide as a plus sign
    verdicts.ALTERED: "≠",
    verdicts.EXTRA: "+",
    verdicts.DOUBLED: "2×",  # noqa: RUF001
    verdicts.REORDERED: "↕",
    DIFFERS: "≠",
    verdicts.UNPROVEN: "?",
    verdicts.EXPIRED: "○",
    verdicts.NEVER_MINE: "○",
    verdicts.COMPACTED: "○",
    verdicts.COMPACTED_SOURCE: "○",
    "agrees": "=",
    "no_difference": "○",
}
"""Colours alone say nothing: each verdict has a sign, too."""
_GRAVITY = ("differs", "unproven", "no_difference", "agrees")
_KINDS = {
    **MEANINGS,
    COUNTS: "the position counts other records than a side has",
    NOT_COMPARED: "they can't be compared",
    NOT_BEGUN: "nothing was copied yet",
    LAG: "the source has gone on",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a partition's chart: its gravest verdict, and words for all of them."""

    bucket: int
    verdict: str
    words: str


@dataclass(frozen=True, slots=True)
class Section:
    """A partition whose findings are shown. `cut`: verdict → (ranges shown, ranges that there are)."""

    number: int
    partition: PartitionOutcome
    marks: list[Mark]
    cut: dict[str, tuple[int, int]]


def html(outcome: Outcome) -> str:
    """Write the page."""
    environment = pages_of("replicator.proof")
    environment.filters |= {
        "key": key,
        "label": label,
        "tone": tone,
        "symbol": lambda verdict: SYMBOLS.get(verdict, "≠"),
        "findings": headline.findings,
        "offsets": offsets,
    }
    totals = outcome.totals()
    rows = sorted(enumerate(outcome.partitions), key=lambda row: _GRAVITY.index(row[1].verdict))
    sections = [section(number, partition) for number, partition in rows if _worth_a_look(partition)]
    return environment.get_template("report.html.j2").render(
        outcome=outcome,
        title=TITLES[outcome.verdict],
        headline=headline.headline(outcome),
        totals=totals,
        kinds={name: text for name, text in MEANINGS.items() if totals.get(name)},
        of_partitions=Counter(name for partition in outcome.partitions for name in partition.verdicts),
        actions={step.kind: step.action for step in next_steps(outcome)},
        steps=next_steps(outcome),
        step_title=step_title,
        rows=rows[:ROWS_SHOWN],
        rows_left=Counter(TITLES[partition.verdict] for _, partition in rows[ROWS_SHOWN:]),
        sections=sections[:SECTIONS_SHOWN],
        sections_left=len(sections) - SECTIONS_SHOWN,
        numbers={item.number for item in sections[:SECTIONS_SHOWN]},
        duration=_duration(outcome.duration_ms),
        opened=sum(partition.opened for partition in outcome.partitions),
        buckets=BUCKETS,
        titles=TITLES,
    )


def section(number: int, partition: PartitionOutcome) -> Section:
    """Return what the page shows of one partition."""
    shown = Counter(item.verdict for item in partition.ranges)
    cut = {
        name: (shown[name], partition.ranges_found[name])
        for name in MEANINGS
        if partition.ranges_found.get(name, 0) > shown[name]
    }
    return Section(number, partition, list(strip(partition)), cut)


def _worth_a_look(partition: PartitionOutcome) -> bool:
    return not partition.agrees or bool(partition.removed)


def strip(partition: PartitionOutcome) -> Iterator[Mark]:
    """Yield the marks of a partition's chart."""
    for bucket in range(BUCKETS):
        here = [(name, partition.places[name][bucket]) for name in MEANINGS if name in partition.places]
        found = {name: records for name, records in here if records}
        if found:
            words = f"{bucket * 100 // BUCKETS} % of the partition: {headline.words(found)}"
            yield Mark(bucket, next(iter(found)), words)


def step_title(step: Step) -> str:
    """Write the title of a step, such as `6 records missing`, `2 partitions: they can't be compared`."""
    many = counted(step.count, step.of.removesuffix("s"))
    if step.of == "partitions":
        return f"{many}: {_KINDS.get(step.kind, label(step.kind))}"
    return f"{many} {label(step.kind)}"


def tone(verdict: str) -> str:
    """Say which colour: bad, open, removed or good."""
    if verdict in (*verdicts.REMOVED, "no_difference", LAG, NOT_BEGUN):
        return "removed"
    if verdict in (verdicts.SAME, "agrees"):
        return "good"
    return "open" if verdict in (verdicts.UNPROVEN, NOT_COMPARED) else "bad"


def offsets(span: tuple[int, int] | None) -> str:
    """Write the first and the last offset, without separators: they are copied into other tools."""
    if span is None:
        return "–"  # noqa: RUF001
    return str(span[0]) if span[0] == span[1] else f"{span[0]}–{span[1]}"  # noqa: RUF001


def key(key: bytes | None) -> str:
    """Write a key's beginning for people."""
    return "null" if key is None else text_of(key) or "(empty)"


def _duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
