"""A member of a flow's group of workers in a process of its own, run as a module with BOOTSTRAP FLOW LANES.

It joins, says so, and then answers each LANE on stdin by what became of a proof.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from replicator.config import Flow, load_text
from replicator.kafka.group_consumer import GroupConsumer
from replicator.kafka.group_events import GroupEvent, LanesAssigned, ProofAnswered
from replicator.workers.early import WorkerClientId
from replicator.workers.proofs import ProofAnswer, ProofMetadata, result_of

TOLD_S_MAX = 90.0
E = TypeVar("E")


def flow_of(bootstrap: str, name: str) -> Flow:
    """A flow whose target is this cluster."""
    at = f'{{properties: {{bootstrap.servers: "{bootstrap}"}}}}'
    text = f"clusters: {{a: {at}, b: {at}}}\nflows: {{{name}: {{source: a, target: b, topics: [t]}}}}"
    return load_text(text, env={}).flows[name]


class GroupMember:
    """A `GroupConsumer` with the events that it has told."""

    def __init__(self, bootstrap: str, name: str, lanes: int) -> None:
        client_id = WorkerClientId("host", os.getpid(), "nonce").encode()
        self.events: list[GroupEvent] = []
        self._changed = threading.Condition()
        self.consumer = GroupConsumer(flow_of(bootstrap, name), lanes, client_id, self._take)
        self.numbers = iter(range(1, 1_000_000))
        self.consumer.subscribe()

    def _take(self, event: GroupEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, fits: Callable[[list[GroupEvent]], object], meaning: str, timeout_s: float = TOLD_S_MAX) -> None:
        """Wait until the events so far fit."""
        with self._changed:
            assert self._changed.wait_for(lambda: fits(self.events), timeout_s), (meaning, self.events)

    def wait_lanes(self, count: int) -> frozenset[int]:
        """Wait until it has so many lanes, and return them."""

        def lanes(events: list[GroupEvent]) -> frozenset[int]:
            return max((e.lanes for e in events[-1:] if isinstance(e, LanesAssigned)), default=frozenset(), key=len)

        self.wait(lambda events: len(lanes(events)) == count, f"{count} lanes")
        return lanes(self.events)

    def proof(self, lane: int) -> ProofAnswer:
        """Ask for a proof, and wait for what became of it."""
        number = next(self.numbers)
        text = ProofMetadata(owner="o", version="1", generation=1, since_ms=time.time_ns(), settings_hash="h").encode()
        self.consumer.prove(lane, number, text)
        found: queue.SimpleQueue[ProofAnswer] = queue.SimpleQueue()

        def answered(events: list[GroupEvent]) -> bool:
            answers = [e.answer for e in events if isinstance(e, ProofAnswered) and e.answer.number == number]
            assert len(answers) <= 1, answers
            for each in answers:
                found.put(each)
            return bool(answers)

        self.wait(answered, f"an answer to proof {number}")
        return found.get_nowait()

    def close(self) -> None:
        """Leave."""
        assert self.consumer.close(TOLD_S_MAX)


def main(bootstrap: str, name: str, lanes: str) -> None:
    """Join, say so, and prove what is asked for."""
    member = GroupMember(bootstrap, name, int(lanes))
    member.wait(lambda events: any(isinstance(e, LanesAssigned) and e.lanes for e in events), "a first assignment")
    print("joined", flush=True)
    for line in sys.stdin:
        answer = member.proof(int(line))
        print(result_of(answer).name, flush=True)
    member.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
