"""The demo's application: a consumer group's member that has a side effect for each record. A process of its own.

Its side effect is a line in a file with the record's name. As most applications do, it commits after it has processed
a batch; so what it has processed since its last commit is processed again by whoever goes on for it.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message

from cli.demo.topic_reader import record_of

BATCH_RECORDS, BATCH_S = 100, 0.2
FOR_EVER, TO_END = "for-ever", "to-end"


class Application:
    """The only member of its group."""

    def __init__(self, bootstrap: str, group: str, topics: list[str], ledger: Path) -> None:
        self._ledger = ledger
        self._ended: set[tuple[str | None, int | None]] = set()
        self._begun = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
                "log_level": 0,
            }
        )
        self._consumer.subscribe(topics)

    def run(self, stop: threading.Event, *, to_end: bool) -> None:
        """Process until `stop` is set, or up to where all partitions end. Raises RuntimeError."""
        while not stop.is_set() and not (to_end and self._at_end()):
            self._process(self._consumer.consume(BATCH_RECORDS, BATCH_S))
        self._consumer.close()

    def _at_end(self) -> bool:
        assigned = {(at.topic, at.partition) for at in self._consumer.assignment()}
        return bool(assigned) and assigned <= self._ended

    def _process(self, messages: list[Message]) -> None:
        names = []
        for message in messages:
            error, at = message.error(), (message.topic(), message.partition())
            if error is None:
                self._ended.discard(at)
                names.append(record_of(message).name)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(at)
            elif not error.retriable():
                raise RuntimeError(error.str())
        if not names:
            return
        if not self._begun:
            print("processing", flush=True)
            self._begun = True
        with self._ledger.open("ab") as effects:
            effects.write(b"".join(name + b"\n" for name in names))
        self._consumer.commit(asynchronous=False)


def main(arguments: list[str]) -> None:
    """Run as `python -m cli.demo.consumer BOOTSTRAP GROUP TOPIC,… LEDGER for-ever|to-end`.

    Says `processing` with its first record, and `done` at the end. SIGTERM ends it between two batches.
    """
    bootstrap, group, topics, ledger, until = arguments
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    Application(bootstrap, group, topics.split(","), Path(ledger)).run(stop, to_end=until == TO_END)
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
