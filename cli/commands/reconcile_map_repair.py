"""What `reconcile --repair` adds where partitions were compared by the offset map, with Spark and without."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from cli.options import patience_ms

if TYPE_CHECKING:
    from cli.stopping import Stopping
    from replicator.config import Config, Flow
    from replicator.jobs.repair import RepairedPartition, RepairSummary
    from replicator.jobs.repair_by_map import RepairByMap
    from replicator.jobs.repair_plan import PlannedPartition
    from replicator.jobs.repair_spans import RepairRequest
    from replicator.model.partition import Partition
    from replicator.proof.local import LocalResult
    from replicator.proof.outcome import Outcome
    from replicator.proof.repair_report import MissingSpan, RepairFacts

Wanted = Literal["plan", "apply"]


class MapRepairing:
    """`--repair plan` or `apply` of one run of the command. `code`: 4 where incidents stopped it, 130 where somebody
    did."""

    def __init__(self, loaded: Config, flow: Flow, wanted: Wanted, take_over: bool) -> None:
        self._loaded, self._flow, self._wanted, self._take_over = loaded, flow, wanted, take_over
        self.code = 0
        self.handed_over = True
        """Whether another repair may begin: it would hand over what this one has kept from the flow."""

    def begin(self) -> None:
        """Refuse what can be refused before anything is read.

        Raises TakenOver, ConfigError, and what makes a cluster unreachable.
        """
        from replicator.jobs import repair

        if self._wanted == "apply":
            repair.check(self._flow, take_over=self._take_over)

    def finish(self, outcome: Outcome, result: LocalResult, stopping: Stopping, say: Callable[[str], None]) -> Outcome:
        """Finish after a comparison without Spark: see `facts`."""
        from replicator.jobs.repair_by_map import planned_by_map
        from replicator.proof.local_findings import missing_spans
        from replicator.proof.repair_report import repair_report

        missing = {at: missing_spans(records) for at, records in result.records.items()}
        planned = {at: planned_by_map(choice) for at, choice in result.choices.items()}
        return replace(outcome, repair=repair_report(outcome, self.facts(missing, planned, stopping, say)))

    def facts(
        self,
        missing: dict[Partition, list[MissingSpan]],
        planned: dict[Partition, PlannedPartition],
        stopping: Stopping,
        say: Callable[[str], None],
    ) -> RepairFacts:
        """Return with `plan` what would be copied, with `apply` the repair, which goes by what it finds after its
        fence: the comparison says only which partitions it looks at."""
        from replicator.proof.repair_report import RepairFacts

        wanted = [at for at, plan in planned.items() if plan.copied or missing[at]]
        if self._wanted == "plan" or not wanted:
            return RepairFacts(missing, planned)
        return self._applied(missing, wanted, stopping, say)

    def _applied(
        self,
        missing: dict[Partition, list[MissingSpan]],
        wanted: list[Partition],
        stopping: Stopping,
        say: Callable[[str], None],
    ) -> RepairFacts:
        from replicator.jobs.repair_by_map import RepairByMap
        from replicator.proof.map_repair import MapRepair
        from replicator.proof.repair_report import RepairFacts

        asked = threading.Event()
        choices = MapRepair(self._flow, asked, connect_timeout_ms=patience_ms(self._flow))
        request = RepairByMap(wanted, choices, self._take_over)
        summary = run_repair(self._loaded, self._flow, request, stopping, say, asked.set)
        self.code = 130 if summary.stopped else 4 if summary.incident is not None else 0
        self.handed_over = summary.handed_over
        done = dict(summary.partitions)
        if not summary.stopped:
            done = {at: _settled(one, missing[at], partial(choices.gone, at)) for at, one in done.items()}
        before = {at: one.done_before for at, one in done.items()}
        return RepairFacts(missing, done, summary.generation, before)


def run_repair(
    loaded: Config,
    flow: Flow,
    request: RepairRequest | RepairByMap,
    stopping: Stopping,
    say: Callable[[str], None],
    stop: Callable[[], object] = lambda: None,
) -> RepairSummary:
    """Copy again what is missing. `stop` is called besides when it is asked to stop. Raises as `RepairJob.run`."""
    import structlog

    from replicator import failpoints, logs
    from replicator.jobs.repair import RepairJob

    say("copying missing records again")
    logs.configure("text", "warning")
    failpoint = failpoints.parse(os.environ.get(failpoints.VARIABLE, ""))
    job = RepairJob(flow, loaded, request, structlog.get_logger(), failpoint, say)

    def stop_all() -> None:
        stop()
        job.stop()

    with stopping.asks(stop_all):
        return job.run()


def _settled(
    done: RepairedPartition, missing: list[MissingSpan], gone: Callable[[list[MissingSpan]], int]
) -> RepairedPartition:
    """Account for what was called missing, and wasn't any more after the fence: the source has lost it since, or else
    it stood on the target by then. `gone` counts the former."""
    from replicator.jobs.repair_by_map import SOURCE_HAS_LOST
    from replicator.jobs.repair_decision import WITHOUT_KEY
    from replicator.model.errors import ReplicatorError

    if done.incident is not None:
        return done
    others = done.copied + done.superseded + done.refused.get(WITHOUT_KEY, 0)
    left = sum(records for _, _, records in missing) - others
    if left <= done.standing:
        return done
    try:
        lost = min(left - done.standing, gone(missing))
    except ReplicatorError as error:  # the repair is done, and is told
        untold = f"it isn't missing any more, and the source can't be asked whether it still has it: {error}"
        return replace(done, refused={**done.refused, untold: left - done.standing})
    refused = {**done.refused, SOURCE_HAS_LOST: lost} if lost else done.refused
    return replace(done, standing=left - lost, refused=refused)
