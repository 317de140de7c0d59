"""docs/reference/metrics.md: every metric of `eos-replicate run`, from `replicator.observe.metrics`."""

from __future__ import annotations

from cli.reference.markdown import cell, table
from replicator.flow.restarts import Stage
from replicator.observe.metrics import METRICS, shown_name
from replicator.observe.view import Doing

INTRODUCTION = """\
# Metrics

Generated from `replicator/observe/metrics.py` by `python -m cli.reference`; a test checks that it is up to date.

`eos-replicate run` serves them at `/metrics` where the flow file has `metrics.listen`:
[Monitoring](../operate/monitoring.md). Counters count from the start of the process, and don't go back when a flow is
started again in it. Values that aren't known are absent: there is no lag while the source can't be asked, and none of a
partition that has no position yet. The process metrics of the Prometheus client (`process_cpu_seconds_total`,
`process_resident_memory_bytes`, ...) come besides.
"""


def page() -> str:
    """Write the whole page."""
    rows = (
        (
            f"`{shown_name(name)}`",
            described.kind,
            ", ".join(described.labels) or "none",
            cell(described.help),
        )
        for name, described in METRICS.items()
    )
    return "\n".join(
        (
            INTRODUCTION,
            table(("metric", "type", "labels", "meaning"), rows),
            "## States\n",
            "Values of `eos_partition_state`, and the label `state` of `eos_flow_partitions`:\n",
            table(("value", "state", "meaning"), ((str(it.value), it.name.lower(), DOING[it]) for it in Doing)),
            "Values of `eos_flow_stage`:\n",
            table(("value", "stage", "meaning"), ((str(it.value), it.name.lower(), STAGES[it]) for it in Stage)),
        )
    )


DOING = {
    Doing.UNDECIDED: "Its lane has just begun and has not decided yet, or has ended and nobody is known to have it.",
    Doing.COPYING: "Its records are copied as they come.",
    Doing.WAITING: (
        "It can't be copied at the moment, for a reason that needs no decision: `eos_partition_cause` has the reason "
        "as `kind`."
    ),
    Doing.PAUSED: "An operator has [paused](../operate/control.md#pausing) its topic, or the flow.",
    Doing.FAILED_OVER: "Its topic was [failed over](../operate/failover.md#a-part-of-a-flow): its position is kept.",
    Doing.GONE: "Its topic has gone (`deleted_topics: keep`) or isn't selected any more, or another worker has its "
    "lane. Its counters stay.",
    Doing.STOPPED: "An [incident](../operate/incidents.md) has stopped it, and is the `kind` of `eos_partition_cause`.",
}
STAGES = {
    Stage.STARTING: "It connects, lists its topics and opens its generation.",
    Stage.RUNNING: "Its lanes run; or it was failed over, or stands by.",
    Stage.ENDED: (
        "It has ended for a reason that may be temporary; it is started again while another flow runs, or after a "
        "reload."
    ),
    Stage.OVER: "It was taken over by another process, or has ended for good.",
}
