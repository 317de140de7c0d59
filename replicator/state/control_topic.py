"""All generations of a flow: what the control topic says, folded into one state, and what may be written next. Pure.

Read by `flow_state`, changed by `control`; lanes, and the flow's discovery, ask `check_generation` if they may go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from replicator.model.errors import Incident, TakenOver
from replicator.state import decisions, failover_note, run_settings, starts
from replicator.state.decisions import OperatorDecision
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.generation import BadControl, Generation, Kind, LaneAssignment, Phase, decode, failed_over_said
from replicator.state.run_settings import NO_SETTINGS, RunSettings
from replicator.state.starts import Starts
from replicator.workers.settings import OwnFile, newest_revision

# Which phase a generation may be in before it enters the one on the left; None: it doesn't exist yet.
TRANSITIONS: Mapping[Phase, frozenset[Phase | None]] = {
    Phase.PREPARING: frozenset({None}),
    Phase.OPEN: frozenset({Phase.PREPARING}),
    Phase.CLOSED: frozenset({Phase.PREPARING, Phase.OPEN}),
}


@dataclass(frozen=True)
class Control:
    """All generations by number, as the control topic gives them, and what was decided, by occurrence, and set.

    `start_records` are kept as they were read: most readers need none of them, and a flow may have 100,000 partitions.
    So is `failover_record`, the note of the last failover: only its command reads it, and no lane may fail of it.
    """

    generations: Mapping[int, Generation] = field(default_factory=dict)
    start_records: Mapping[bytes, bytes] = field(default_factory=dict)
    decisions: Mapping[str, OperatorDecision] = field(default_factory=dict)
    settings: RunSettings = NO_SETTINGS
    failover_record: bytes | None = None

    def apply(self, record: Generation) -> Control:
        """Return the state after one more record. Compaction may have removed a generation's earlier phases."""
        before = self.generations.get(record.number)
        phase = before.phase if before else None
        compacted = before is None
        if not compacted and phase not in TRANSITIONS[record.phase]:
            raise BadControl(f"generation {record.number} goes from {phase} to {record.phase}")
        return replace(self, generations={**self.generations, record.number: record})

    @property
    def begun(self) -> bool:
        """Whether a generation is open or being prepared. A topic without one is as good as none."""
        return self.open is not None or self.preparing is not None

    @property
    def newest(self) -> int:
        """Highest generation that was ever begun; 0 when there is none."""
        return max(self.generations, default=0)

    @property
    def open(self) -> Generation | None:
        """The one generation that may run; None while a change is under way or before the first."""
        newest = self.generations.get(self.newest)
        return newest if newest and newest.phase is Phase.OPEN else None

    @property
    def preparing(self) -> Generation | None:
        """A change that is half done."""
        newest = self.generations.get(self.newest)
        return newest if newest and newest.phase is Phase.PREPARING else None

    @property
    def frozen(self) -> Generation | None:
        """The generation of a flow that is failed over, open or about to be; None of another flow."""
        found = self.open or self.preparing
        return found if found is not None and found.kind is Kind.FROZEN else None

    @property
    def is_frozen(self) -> bool:
        """Whether it is failed over by now. Before that, workers of the generation before still copy."""
        return self.frozen is not None and self.open is not None

    @property
    def failed_over(self) -> Mapping[str, int]:
        """Source topics that were failed over, or are about to be, each with the generation that did it. Of a flow that
        is failed over as a whole: those that stay so when that is undone."""
        found = self.open or self.preparing
        return {} if found is None else found.failed_over

    def failed_over_said(self, topic: str) -> str:
        """Say that a source topic was failed over; empty where it wasn't."""
        since = self.failed_over.get(topic)
        if since is None:
            return ""
        return failed_over_said(topic, since, self.generations.get(since))

    @property
    def daemon(self) -> Generation | None:
        """The daemon's last generation, also one that is closed or half done."""
        live = [number for number, generation in self.generations.items() if generation.kind is Kind.LIVE]
        return self.generations[max(live)] if live else None

    @property
    def hashes(self) -> frozenset[str]:
        """Of the settings of all generations."""
        return frozenset(generation.settings_hash for generation in self.generations.values() if generation.settings)

    def to_fence(self) -> list[tuple[int, int]]:
        """Return (generation, lane) of every id of all generations that are not recorded as closed."""
        return [
            (number, lane)
            for number, generation in sorted(self.generations.items())
            if generation.phase is not Phase.CLOSED
            for lane in range(generation.lanes)
        ]

    def claims_partition(self, lane: int) -> int | None:
        """Return the one partition of the claims topic that can hold anything about source partitions of a lane of the
        newest generation; None where others can, too.

        A lane of the daemon writes to the partition of its own number. So it is one as long as all generations were
        the daemon's, with the same number of lanes: then each source partition always had the same lane.
        """
        known = self.generations.values()
        complete = len(self.generations) == self.newest > 0  # a lost control topic doesn't say what came before it
        same = all(it.kind is Kind.LIVE and it.assignment == next(iter(known)).assignment for it in known)
        return lane if complete and same else None

    def first_listing(self) -> Mapping[str, int]:
        """Return partition counts by source topic when the flow was first opened."""
        for _, generation in sorted(self.generations.items()):
            if generation.partitions:
                return generation.partitions
        return {}

    @property
    def never_open(self) -> bool:
        """Whether no generation was open yet, so that the change under way is the flow's first."""
        return all(generation.phase is Phase.PREPARING for generation in self.generations.values())

    def starts(self) -> Starts | None:
        """Return where the first listing's partitions begin, see `starts.start_of`; None where the flow was opened by a
        version that didn't store it: then whoever admits a partition resolves it.

        Raises Incident `control_topic_unreadable`, `newer_format`.
        """
        return self._starts

    @cached_property
    def _starts(self) -> Starts | None:
        counts = [found.start_records for _, found in sorted(self.generations.items())]
        count = next((count for count in counts if count is not None), None)
        if count is None:
            return None
        try:
            if len(self.start_records) != count:
                raise NotOurs(f"{len(self.start_records)} records of starts, not {count}")
            return starts.decode(self.start_records.items())
        except NewerFormat as error:
            raise Incident("newer_format", str(error)) from error
        except NotOurs as error:
            raise Incident("control_topic_unreadable", str(error)) from error

    def prepare(
        self,
        assignment: LaneAssignment,
        listing: Mapping[str, int],
        now_ms: int,
        kind: Kind = Kind.LIVE,
        by: str = "",
        own: OwnFile | None = None,
        failed_over: Mapping[str, int] | None = None,
        decided_by: str = "",
    ) -> Generation:
        """Make the `preparing` record of the next generation; an earlier listing is carried along, and earlier
        settings, unless these are those of `own`, and topics that were failed over, unless `failed_over` has others.
        The daemon's partitions are dealt out to as many lanes as `assignment` has."""
        known = self.first_listing() if self.generations else listing
        before = self.generations.get(self.newest)
        settings, revision = ("", None) if before is None else (before.settings, before.revision)
        source_cluster = "" if before is None else before.source_cluster
        if own is not None:
            settings, revision = own.settings, newest_revision(revision, own.revision)
            source_cluster = own.source_cluster or source_cluster
        if failed_over is None:
            failed_over = {} if before is None else before.failed_over
        return Generation(
            self.newest + 1,
            Phase.PREPARING,
            assignment.lanes,
            kind,
            known,
            now_ms,
            assignment.listed,
            by,
            None if before is None else before.start_records,
            settings,
            revision,
            kind is Kind.LIVE and bool(known),
            source_cluster,
            failed_over,
            decided_by,
        )

    def finish(self, now_ms: int, start_records: int | None = None) -> list[Generation]:
        """Make the records that end the change under way: `closed` for all before, `open` for the prepared one.

        `start_records`: how many are written with them, where this opens the flow for the first time.
        """
        change = self.preparing
        if change is None:
            raise BadControl("no change is under way")
        before = [
            replace(generation, phase=Phase.CLOSED, at_ms=now_ms)
            for number, generation in sorted(self.generations.items())
            if generation.phase is not Phase.CLOSED and number != change.number
        ]
        count = start_records if self.never_open else change.start_records
        return [*before, replace(change, phase=Phase.OPEN, at_ms=now_ms, start_records=count)]


def fold(records: Iterable[tuple[bytes | None, bytes | None]]) -> Control:
    """Return the state that a whole control topic gives. Raises BadControl, NewerFormat."""
    control, start_records, decided = Control(), dict[bytes, bytes](), dict[str, OperatorDecision]()
    settings, failover_record = NO_SETTINGS, None
    for key, value in records:
        if key is not None and value is not None and starts.holds_starts(key):
            start_records[key] = value
            continue
        if key is not None and value is not None and decisions.holds_decision(key):
            decided |= _decision(key, value)
            continue
        if key == run_settings.KEY and value is not None:
            settings = _settings(value) or settings
            continue
        if key == failover_note.KEY:
            failover_record = value
            continue
        found = decode(key, value)
        if found is not None:
            control = control.apply(found)
    return replace(
        control,
        start_records=start_records,
        decisions=decided,
        settings=settings,
        failover_record=failover_record,
    )


def _decision(key: bytes, value: bytes) -> dict[str, OperatorDecision]:
    try:
        found = decisions.decode(key, value)
    except NotOurs as error:
        raise BadControl(str(error)) from error
    return {} if found is None else {found.occurrence: found}


def _settings(value: bytes) -> RunSettings | None:
    try:
        return run_settings.decode(value)
    except NotOurs as error:
        raise BadControl(str(error)) from error


def check_generation(control: Control, generation: int, assignment: LaneAssignment, *, running: bool = False) -> None:
    """Check that lanes of this generation, cut by `assignment`, may run under `control`.

    `running`: they do, and are not asked to start. Then another generation that is only being prepared doesn't matter
    yet: it fences them before it opens, and whoever prepares it may die before that.

    Raises TakenOver (`by_generation`) where the generation is closed, or another is open or being prepared; Incident
    `control_topic_behind` where the control topic doesn't know it.
    """
    newest = control.newest
    if newest < generation:
        why = f"lanes run under generation {generation}, the control topic knows {newest}"
        raise Incident("control_topic_behind", why)
    found = control.open
    if running and control.preparing is not None:
        before = control.generations.get(generation)
        found = before if before is not None and before.phase is Phase.OPEN else None
    if found is not None and (found.number, found.assignment) == (generation, assignment):
        return
    other = control.generations[newest]
    what = f"generation {newest} ({other.kind.value})"
    if newest == generation:
        raise TakenOver.of_generation(
            f"{what} is {other.phase.value} with {other.lanes} lanes, not open with {assignment.lanes}"
        )
    if other.phase is Phase.PREPARING:
        raise TakenOver.of_generation(f"{what} is being prepared, and takes over from {generation}")
    raise TakenOver.of_generation(f"{what} has taken over from {generation}")
