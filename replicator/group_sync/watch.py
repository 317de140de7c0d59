"""The thread that syncs the consumer groups of one flow, beside its lanes, which never wait for it.

A failure stops nothing: it is told once, and tried again later; copying goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

import structlog

from replicator.backoff import Backoff
from replicator.clock import RealClock
from replicator.config import Flow
from replicator.group_sync.commits import ASK_S
from replicator.group_sync.gone import GoneGroup
from replicator.group_sync.hold_topics import hold_topics_of
from replicator.group_sync.live_map import KafkaLiveMap
from replicator.group_sync.note_topic import NoteTopic
from replicator.group_sync.sync import GroupSync, RoundDone
from replicator.group_sync.transaction_looks import TransactionLooks
from replicator.groups.decision import VERDICTS_SAID, GroupVerdict
from replicator.groups.ownership import GroupOffset
from replicator.groups.shown_groups import GroupObserver, GroupShown
from replicator.incidents import tell_incident
from replicator.model import names
from replicator.model.errors import Incident, ReplicatorError
from replicator.model.partition import Partition
from replicator.wire.group_questions import GroupQuestions
from replicator.wire.producer_questions import ProducerQuestions
from replicator.wire.transaction_log_tail import TransactionLogTail

AGAIN_FIRST_S, AGAIN_MAX_S = 2.0, 60.0
_TOLD = frozenset({GroupVerdict.HAS_MEMBERS, GroupVerdict.NOT_OURS, GroupVerdict.REFUSED})
"""Of a group that has such partitions there is a line in the log, once."""


class GroupSyncWatch:
    """Of one flow. It ends when `ended` is set."""

    def __init__(
        self,
        flow: Flow,
        sync: GroupSync,
        seen: GroupObserver,
        ended: threading.Event,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._interval_s = flow.groups.interval_ms / 1000
        self._sync, self._seen, self._ended, self._log = sync, seen, ended, log
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        self._told = ""
        self._left: dict[str, str] = {}  # groups that are left alone, and why, as it was told
        self._kept: dict[str, str] = {}  # groups that have gone at the source, and why they are kept, as it was told
        self._groups = -1
        self._seen_once = False

    def run(self, failed: Callable[[BaseException], None], close: Callable[[], None]) -> None:
        """Run until it has ended; this is the thread's work. `failed` is told of a bug, which ends it; `close`: called
        at its end.
        """
        try:
            pause_s = 0.0
            while not self._waited(pause_s):
                pause_s = self.look()
        except BaseException as error:  # noqa: BLE001 - the flow classifies it
            failed(error)
        finally:
            self._seen(None)
            close()

    def _waited(self, pause_s: float) -> bool:
        """Wait so long, and look at the source's transactions meanwhile; whether it is over."""
        until_s = time.monotonic() + pause_s
        while True:
            try:
                look_s = self._sync.look()
            except ReplicatorError as error:  # the round begins anew
                self._not_done(error)
                return self._ended.is_set()
            left_s = until_s - time.monotonic()
            if self._ended.wait(max(0.0, min(left_s, look_s))):
                return True
            if left_s <= look_s:
                return False

    def look(self) -> float:
        """Run one round; return how long to wait for the next one."""
        try:
            done = self._sync.round()
        except ReplicatorError as error:
            if self._seen_once:
                self._seen(self._sync.shown(), done=False)
            self._not_done(error)
            return max(self._interval_s, self._backoff.next_s())
        self._backoff = Backoff(AGAIN_FIRST_S, AGAIN_MAX_S)
        self._done(done)
        return self._interval_s

    def _not_done(self, error: ReplicatorError) -> None:
        if str(error) == self._told:
            return
        self._told = str(error)
        if isinstance(error, Incident):
            tell_incident(self._log, error)
        else:
            self._log.warning("groups_not_synced", reason=str(error))

    def _done(self, done: RoundDone) -> None:
        shown = self._sync.shown()
        self._seen(shown)
        self._seen_once = True
        reasons = "; ".join(sorted({str(error) for error in done.unanswered}))
        if reasons != self._told:
            if reasons:
                self._log.warning("groups_not_synced", reason=reasons)
            else:
                self._log.info("groups_synced_again")
        self._told = reasons
        if done.groups != self._groups:
            self._groups = done.groups
            self._log.info("groups_followed", groups=done.groups)
        self._tell_left(shown)
        for it in done.gone:
            self._tell_gone(it)

    def _tell_gone(self, it: GoneGroup) -> None:
        """Say what has become of a group that was deleted at the source: why it is kept, once."""
        if self._kept.get(it.target_group) == it.kept:
            return
        if it.kept:
            self._kept[it.target_group] = it.kept
            self._log.warning("deleted_group_kept", group=it.group, reason=it.kept)
        else:
            self._kept.pop(it.target_group, None)
            self._log.info("group_deleted", group=it.group)

    def _tell_left(self, shown: Sequence[GroupShown]) -> None:
        """Say once of each group why some of it isn't moved."""
        left: dict[str, str] = {}
        for it in shown:
            counts = it.counts
            why = [VERDICTS_SAID[verdict] for verdict in counts if verdict in _TOLD]
            if it.detail == GroupVerdict.MEMBERS_AT_SOURCE.value:
                why.append(VERDICTS_SAID[GroupVerdict.MEMBERS_AT_SOURCE])
            if why:
                left[it.group] = "; ".join(why)
                if self._left.get(it.group) != left[it.group]:
                    partitions = sum(number for verdict, number in counts.items() if verdict in _TOLD)
                    self._log.warning("group_left_alone", group=it.group, partitions=partitions, reason=left[it.group])
        self._left = left


def watch_groups(
    flow: Flow,
    seen: GroupObserver,
    ended: threading.Event,
    log: structlog.stdlib.BoundLogger,
    failed: Callable[[BaseException], None],
) -> None:
    """Start the thread, if the flow has groups to be synced."""
    if not flow.groups.synced:
        return
    with ExitStack() as stack:
        sync = group_sync_of(flow, stack, log)
        close = stack.pop_all().close
    watch = GroupSyncWatch(flow, sync, seen, ended, log)
    threading.Thread(target=watch.run, args=(failed, close), name=f"{flow.name}.groups", daemon=True).start()


def group_sync_of(flow: Flow, stack: ExitStack, log: structlog.stdlib.BoundLogger) -> GroupSync:
    """Make what syncs a flow's groups on Kafka; `stack` closes it."""

    def client_error(text: str) -> None:
        log.info("client", detail=text)

    client_id = f"eos-replicate.{flow.name}.groups"
    questions = []
    for cluster in (flow.source, flow.target):
        made = GroupQuestions(cluster, client_id)
        stack.callback(made.close)
        questions.append(made)
    live_map, notes, hold_topics = KafkaLiveMap(flow), NoteTopic(flow, client_error), hold_topics_of(flow, log)
    stack.callback(live_map.close)
    stack.callback(notes.forget)
    stack.callback(hold_topics.close)
    producers = ProducerQuestions(flow.source, client_id, kept_s=flow.limits.discovery_interval_ms / 2000)
    clock = RealClock()
    stack.callback(producers.close)

    def positions(ats: Collection[Partition]) -> Mapping[Partition, GroupOffset]:
        group = names.position_group(flow.name)
        values = questions[1].offsets({group: None}, ASK_S, stable=False)[group]
        if isinstance(values, ReplicatorError):
            raise values
        found = values.topics()
        stands = {at: found.get(live_map.target_topic(at.topic), {}).get(at.partition) for at in ats}
        return {at: value for at, value in stands.items() if isinstance(value, GroupOffset)}

    looks = TransactionLooks(
        flow, TransactionLogTail(producers), live_map.ends_of, positions, live_map.ids_of, clock, log
    )
    return GroupSync(flow, questions[0], questions[1], live_map, notes, hold_topics, clock, looks)
