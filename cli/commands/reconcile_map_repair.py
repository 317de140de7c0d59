"""What `reconcile --repair` adds where partitions were compared by the offset map, with Spark and without."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
    from replicator.state.claims import Repair as Repaired

Wanted = Literal["plan", "apply"]


class MapRepairing:
    """`--repair plan` or `apply` of one run of the command, by the map alone. `code`: see `code_of`."""

    def __init__(self, loaded: Config, flow: Flow, wanted: Wanted, take_over: bool) -> None:
        self._loaded, self._flow, self._wanted, self._take_over = loaded, flow, wanted, take_over
        self._before = NOTHING_BEFORE
        self.code = 0

    def begin(self) -> None:
        """Refuse what can be refused before anything is read.

        Raises TakenOver, ConfigError, and what makes a cluster unreachable.
        """
        if self._wanted == "apply":
            self._before = RepairsBefore.read(self._flow, take_over=self._take_over)

    def finish(self, outcome: Outcome, result: LocalResult, stopping: Stopping, say: Callable[[str], None]) -> Outcome:
        """Finish after a comparison without Spark: see `RepairByMapPart`."""
        from replicator.jobs.repair_by_map import planned_by_map
        from replicator.proof.local_findings import missing_spans
        from replicator.proof.repair_report import repair_report

        missing = {at: missing_spans(records) for at, records in result.records.items()}
        planned = {at: planned_by_map(choice) for at, choice in result.choices.items()}
        part, summary = RepairByMapPart(self._flow, missing, planned), None
        if self._wanted == "apply" and ((requests := part.requests()) or self._before.kept):
            at = self._loaded, self._flow, requests, outcome, self._before
            summary = run_repair(*at, stopping, say, part.stop, take_over=self._take_over)
            self.code = code_of(summary)
        return replace(outcome, repair=repair_report(outcome, part.facts(summary)))


class RepairByMapPart:
    """What a repair does by the map, of one comparison."""

    def __init__(
        self, flow: Flow, missing: dict[Partition, list[MissingSpan]], planned: dict[Partition, PlannedPartition]
    ) -> None:
        """What the comparison calls missing, and what would be copied."""
        from replicator.proof.map_repair import MapRepair

        self._missing, self._planned = missing, planned
        self._wanted = [at for at, plan in planned.items() if plan.copied or missing[at]]
        self._asked = threading.Event()
        self._choices = MapRepair(flow, self._asked, connect_timeout_ms=patience_ms(flow))

    def requests(self) -> list[RepairRequest | RepairByMap]:
        """Return what is to be repaired, if anything. The repair goes by what it finds after its fence: the comparison
        says only which partitions it looks at.
        """
        from replicator.jobs.repair_by_map import RepairByMap

        return [RepairByMap(self._wanted, self._choices)] if self._wanted else []

    def stop(self) -> None:
        """Stop what is read for it."""
        self._asked.set()

    def facts(self, summary: RepairSummary | None) -> RepairFacts:
        """Return what would be copied, or the repair's `summary` of these partitions."""
        from replicator.proof.repair_report import RepairFacts

        missing = self._missing
        if summary is None:
            return RepairFacts(missing, self._planned)
        done = dict(summary.of(missing).partitions)
        if not summary.stopped:
            done = {at: _settled(one, missing[at], partial(self._choices.gone, at)) for at, one in done.items()}
        before = {at: one.done_before for at, one in done.items()}
        refused = {at: plan for at, plan in self._planned.items() if at not in self._wanted}
        return RepairFacts(missing, {**refused, **done}, summary.generation, before)


def code_of(summary: RepairSummary) -> int:
    """Return 130 where somebody stopped the repair, 4 where an incident did, or where the flow can't go on yet."""
    if summary.stopped:
        return 130
    return 4 if summary.incident is not None or not summary.handed_over else 0


@dataclass(frozen=True)
class RepairsBefore:
    """What repairs have done before a comparison: `known`, all that they copied; `kept`: whether the last one has not
    handed the flow over."""

    known: frozenset[Repaired] = frozenset()
    kept: bool = False

    @classmethod
    def read(cls, flow: Flow, *, take_over: bool) -> RepairsBefore:
        """Read it. Raises as `MapRepairing.begin`."""
        from replicator.jobs import repair

        kept = repair.check(flow, take_over=take_over)
        return cls(repair.known(flow), kept)


NOTHING_BEFORE = RepairsBefore()


def run_repair(
    loaded: Config,
    flow: Flow,
    requests: Sequence[RepairRequest | RepairByMap],
    outcome: Outcome,
    before: RepairsBefore,
    stopping: Stopping,
    say: Callable[[str], None],
    stop: Callable[[], object],
    *,
    take_over: bool,
) -> RepairSummary:
    """Copy again what is missing, in one generation; without a request hand over what the repair before has kept. Of
    the `outcome` it counts which partitions are whole. `stop` is called besides when it is asked to stop. Raises as
    `RepairJob.run`."""
    import structlog

    from replicator import failpoints, logs
    from replicator.jobs.repair import RepairJob

    say("copying missing records again" if requests else "handing the flow over")
    logs.configure("text", "warning")
    failpoint, log = failpoints.parse(os.environ.get(failpoints.VARIABLE, "")), structlog.get_logger()
    whole = [one.source for one in outcome.partitions if one.lacks_nothing]
    job = RepairJob(flow, loaded, requests, log, failpoint, say, whole=whole, known=before.known, take_over=take_over)

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
