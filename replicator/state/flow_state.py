"""The flow's own topics on the target: the one reader of its control topic and of its claims topic.

Invariant 2: a control topic that has gone, or that holds no generation, is told and never taken for a new one.
Used by `flow.setup`, by lanes (as `lane.ports.StateReader`), by jobs and by reconcile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from replicator.config import Flow
from replicator.kafka.topic_questions import raised
from replicator.kafka.topic_reader import KeyAndValue, TopicReader
from replicator.model import names
from replicator.model.errors import Incident, ReplicatorError, Retriable
from replicator.model.partition import Partition
from replicator.state.claims import Claims, read_claims
from replicator.state.control_topic import Control, fold
from replicator.state.envelope import NewerFormat, NotOurs
from replicator.state.generation import BadControl

CONTROL_LOST = "control_topic_lost"
CONFIRM_S = 1.0
"""A broker that starts may not know a topic for a moment: only two answers, so far apart, say that it is missing."""


class FlowState:
    """Reads when it is asked, and keeps nothing. Used from one thread. Closing the reader is its owner's business."""

    def __init__(
        self,
        flow: Flow,
        reader: TopicReader,
        *,
        claim_partitions: int = 1,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """`reader` is of the target; `claim_partitions`: how many partitions the claims topic has at least."""
        self._reader, self._claim_partitions, self._pause = reader, claim_partitions, pause
        self._control, self._claims = names.control_topic(flow.name), names.claims_topic(flow.name)

    def control(self) -> Control:
        """Read the control topic of a flow that has run, read_committed up to its read_uncommitted end.

        Raises Incident: `control_topic_lost` where there is no such topic, or neither an open nor a preparing
        generation in it; `control_topic_unreadable`; `newer_format`. Retriable, Unreachable, NotAllowed.
        """
        found = self.control_confirmed()
        if found is None or not found.begun:
            raise self._lost(found)
        return found

    def check_there(self) -> None:
        """Raise Incident `control_topic_lost` where there is no control topic, and none a moment later; what it holds
        isn't asked. Else as `control`."""
        if not self._reader.partition_count(self._control):
            self._pause(CONFIRM_S)
            if not self._reader.partition_count(self._control):
                raise self._lost(None)

    def control_unless_new(self) -> Control | None:
        """Read as `control` does, but return None of a flow that has never run: there are no claims either.

        Raises as `control`, and, where the control topic says nothing, as `claims_if_any`.
        """
        found = self.control_if_any()
        if found is None or not found.begun:
            claims = self.claims_if_any()
            found = self.control_confirmed()  # asked last: whoever opens a flow makes this topic before it claims
            if found is None or not found.begun:
                if claims is not None and claims.claims:
                    raise self._lost(found, ", but the flow has claims")
                return None
        return found

    def _lost(self, found: Control | None, more: str = "") -> Incident:
        what = "doesn't exist" if found is None else "holds neither an open nor a preparing generation"
        return Incident(CONTROL_LOST, f"{self._control} {what}{more}", topic=self._control, partition=0)

    def control_confirmed(self) -> Control | None:
        """Read as `control_if_any` does, but return None only if there is still no such topic a moment later."""
        found = self.control_if_any()
        if found is None:
            self._pause(CONFIRM_S)
            found = self.control_if_any()
        return found

    def control_if_any(self) -> Control | None:
        """Read the control topic as it stands, perhaps without a generation; None where one answer says that there is
        no such topic. Else as `control`."""
        records = self._whole(self._control, 1)
        return None if records is None else self._folded(records)

    def _folded(self, records: list[KeyAndValue]) -> Control:
        try:
            return fold(records)
        except NewerFormat as error:
            raise Incident("newer_format", str(error), topic=self._control, partition=0) from error
        except BadControl as error:
            raise Incident("control_topic_unreadable", str(error), topic=self._control, partition=0) from error

    def claims(self, partition: int | None = None) -> Claims:
        """Read the claims topic of a flow that has run, read like the control topic; all of it, or one `partition`.

        Raises Incident: `claims_topic_lost`, `claims_topic_unreadable`, `newer_format`. Retriable, also while the topic
        shows fewer partitions than its lanes need; Unreachable, NotAllowed.
        """
        found = self.claims_if_any(partition)
        if found is None:
            self._pause(CONFIRM_S)
            found = self.claims_if_any(partition)
        if found is None:
            raise Incident("claims_topic_lost", f"{self._claims} doesn't exist", topic=self._claims)
        return found

    def claims_if_any(self, partition: int | None = None) -> Claims | None:
        """Read the claims topic as it stands, or one `partition` of it; None where one answer says that there is no
        such topic. Else as `claims`."""
        records = self._whole(self._claims, self._claim_partitions, partition)
        return None if records is None else self._claimed(records)

    def _claimed(self, records: list[KeyAndValue]) -> Claims:
        try:
            return read_claims(records)
        except NewerFormat as error:
            raise Incident("newer_format", str(error), topic=self._claims) from error
        except NotOurs as error:
            raise Incident("claims_topic_unreadable", str(error), topic=self._claims) from error

    def both_if_any(self) -> tuple[Control | None, Callable[[], Claims | None]]:
        """Return what `control_if_any` returns, and what returns or raises what `claims_if_any` does. Both are read at
        once, but what the control topic says may forbid to go on, whatever is wrong with the claims.

        Claims that an open transaction hides are left out. Where a worker has died in it that would be waited for until
        its timeout, while the worker's successor is the one that ends it, by fencing the lane.
        """
        control, claims = self._whole_both(None)
        return control, lambda: None if (records := raised(claims)) is None else self._claimed(records)

    def control_and_claims(self, lane: int) -> tuple[Control, Callable[[], Claims]]:
        """Read as `both_if_any` does, but return both as `control` and `claims` return them, and those claims that can
        concern a lane.
        """
        found, read = self._whole_both(lane)
        control = found if found is not None and found.begun else self.control()

        def claims() -> Claims:
            wanted = control.claims_partition(lane)
            return self._claimed(read) if wanted == lane and isinstance(read, list) else self.claims(wanted)

        return control, claims

    def _whole_both(self, lane: int | None) -> tuple[Control | None, list[KeyAndValue] | ReplicatorError | None]:
        """Read the control topic, and the records of the claims topic as `both_if_any` does, or of a lane's partition,
        which that lane has fenced, up to its end; None where one answer says that there is no such topic."""
        counts = self._reader.partition_counts((self._control, self._claims))
        control, claims = raised(counts[self._control]), counts[self._claims]
        if isinstance(claims, int) and 0 < claims < self._claim_partitions:
            claims = self._too_few(self._claims, claims, self._claim_partitions)
        there = range(claims) if isinstance(claims, int) else range(0)
        asked = [Partition(self._control, number) for number in range(control)]
        of_claims = [Partition(self._claims, number) for number in there if lane in (None, number)]
        asked += of_claims
        visible_only = of_claims if lane is None else []
        read = self._reader.whole_partitions(asked, visible_only=visible_only) if asked else {}
        folded = [record for at, found in read.items() if at.topic == self._control for record in raised(found)]
        claimed = {at: found for at, found in read.items() if at.topic == self._claims}
        wrong = next((it for it in claimed.values() if isinstance(it, ReplicatorError)), None)
        records = wrong or [record for found in claimed.values() for record in raised(found)]
        return (
            self._folded(folded) if control else None,
            claims if isinstance(claims, ReplicatorError) else records if claims else None,
        )

    def _whole(self, topic: str, partitions_min: int, partition: int | None = None) -> list[KeyAndValue] | None:
        count = self._reader.partition_count(topic)
        if not count:
            return None
        if count < partitions_min:
            raise self._too_few(topic, count, partitions_min)
        return self._reader.whole(topic, range(count) if partition is None else (partition,))

    def _too_few(self, topic: str, count: int, partitions_min: int) -> Retriable:
        """Return the error of a topic that shows too few partitions: a claim that isn't seen would make a lost position
        look like a new partition.
        """
        return Retriable(f"{topic} has {count} partitions, not {partitions_min}")
