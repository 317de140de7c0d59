"""Whether a repair has made a copy worse: both sides of a seed before it, and the target after it. Pure.

Never is a record there less often than before, nor more often than before or on the source, whichever is more. Where
the target is compacted, a cleaner may take what a later record of the key has superseded; what counts there is what it
keeps: the last record of each key is the one that stood last before, or the last one that the flow has copied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from integration_tests.spark.planted import Content
from integration_tests.spark.seeded_logs import Log, Logs


def contents(log: Log) -> list[Content]:
    """What can still be read, in order."""
    return [placed.entry.content for placed in log.visible]


def harm(logs: Logs, after: Sequence[Content]) -> Iterator[str]:
    """What is worse than it was. `after`: the target's records after the repair."""
    if logs.seeded.shape.target_compacted:
        yield from _of_last(logs, after)
        return
    truth, before, now = Counter(contents(logs.source)), Counter(contents(logs.target)), Counter(after)
    for content in before.keys() | now.keys():
        if not before[content] <= now[content] <= max(before[content], truth[content]):
            times = before[content], now[content], truth[content]
            yield f"{content}: {times[0]} times before the repair, {times[1]} after it, {times[2]} on the source"


def _of_last(logs: Logs, after: Sequence[Content]) -> Iterator[str]:
    copied = [placed.entry.content for placed in logs.source.visible if placed.offset < logs.source.end]
    truth, before, now = ({one.key: one for one in side} for side in (copied, contents(logs.target), after))
    for key in before.keys() | now.keys():
        if key is not None and now.get(key) not in (before.get(key), truth.get(key)):
            yield f"last of key {key!r}: {before.get(key)}, then {now.get(key)}; on the source {truth.get(key)}"
        elif key in before and key not in now:
            yield f"nothing is left of key {key!r}"
