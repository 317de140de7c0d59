"""What can go wrong, named by what the worker does about it and not by where it came from.

Every error that concerns a record carries topic, partition and offset, so that the operator reads them
without a debugger. `cli.main` maps the classes to exit codes through `exit_code`.
"""

from __future__ import annotations


class ReplicatorError(Exception):
    """Base of all errors that the replicator raises on purpose."""

    exit_code = 70


class ConfigError(ReplicatorError):
    """The flow file is wrong; the message lists every fault with key path and line."""

    exit_code = 2


class Unreachable(ReplicatorError):
    """A cluster did not answer within its bounded time, or refused the credentials."""

    exit_code = 3


class NotAllowed(ReplicatorError):
    """A right is missing; the message names the right, the resource and the cluster."""

    exit_code = 3


class Retriable(ReplicatorError):
    """A step failed without effect: the lane backs off and starts over at the fence."""

    exit_code = 3


class Abortable(ReplicatorError):
    """The open transaction must be aborted and the source rewound to the committed position."""

    exit_code = 3


class RecordRefused(Abortable):
    """The target refused some record of the open transaction; smaller transactions will find out which."""


class UnknownOutcome(ReplicatorError):
    """A commit may or may not have been applied: discard the producer and start over at the fence."""

    exit_code = 3


class Fenced(ReplicatorError):
    """Another producer initialised this lane's transactional id, or the transaction timed out."""

    exit_code = 5


class Superseded(ReplicatorError):
    """Another owner or another generation runs this flow now; this process must not go on."""

    exit_code = 5


class Incident(ReplicatorError):
    """Something only a person may decide: going on could lose, double or alter records.

    `name` is a stable word for alerts and policies, `offset` the source offset where the flow stands
    (-1 when none applies), `advice` says what to do next.
    """

    exit_code = 4

    def __init__(
        self, name: str, detail: str, *, topic: str = "", partition: int = -1, offset: int = -1, advice: str = ""
    ) -> None:
        self.name = name
        self.detail = detail
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.advice = advice
        where = f" at {topic}" if topic else ""
        where += f"[{partition}]" if topic and partition >= 0 else ""
        where += f" offset {offset}" if offset >= 0 else ""
        super().__init__(f"{name}{where}: {detail}" + (f". {advice}" if advice else ""))

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.name, self.detail, self.topic, self.partition, self.offset, self.advice)
        return _incident, fields

    def at(self, partition: int, offset: int) -> Incident:
        """The same incident, of one partition and at the offset where the flow stands there."""
        return Incident(
            self.name, self.detail, topic=self.topic, partition=partition, offset=offset, advice=self.advice
        )


def _incident(name: str, detail: str, topic: str, partition: int, offset: int, advice: str) -> Incident:
    """An incident that comes out of a pickle: one of a task in another process."""
    return Incident(name, detail, topic=topic, partition=partition, offset=offset, advice=advice)


class Fatal(ReplicatorError):
    """A state that the code rules out: a bug here or in a library."""

    exit_code = 70
