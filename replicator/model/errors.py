"""What can go wrong, named by what the worker does about it and not by where it came from.

Every error that concerns a record carries topic, partition and offset, so that the operator reads them
without a debugger. `cli.main` maps the classes to exit codes through `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterable

from replicator.model.commands import ONE_RECORD
from replicator.model.incident_kinds import advice_for, with_place_of_id
from replicator.model.partition import Partition


class ReplicatorError(Exception):
    """Base of all errors that the replicator raises on purpose. They keep class and facts through a pickle."""

    exit_code = 70

    def __reduce__(self) -> tuple[object, ...]:
        # Exception's own would call __init__ with the message alone; a task on Spark sends its error to the driver.
        return _from_pickle, (type(self), self.args, vars(self))


def _from_pickle(kind: type[ReplicatorError], args: tuple[object, ...], facts: dict[str, object]) -> ReplicatorError:
    error = kind.__new__(kind, *args)
    vars(error).update(facts)
    return error


class ConfigError(ReplicatorError):
    """The flow file is wrong; the message lists every fault with key path and line."""

    exit_code = 2


class LocalFault(ConfigError):
    """What a process lacks to use its own connections: a file, memory, a descriptor. Another process that has the same
    flow may well go on."""


class Unreachable(ReplicatorError):
    """A cluster did not answer within its bounded time, or refused the credentials."""

    exit_code = 3


class NotAllowed(ReplicatorError):
    """A right is missing; the message names the right, the resource and the cluster.

    `partitions` are the source partitions that it stops; empty when the client did not say.
    """

    exit_code = 3

    def __init__(self, message: str, partitions: Iterable[Partition] = ()) -> None:
        self.partitions = frozenset(partitions)
        super().__init__(message)


class Unsupported(ReplicatorError):
    """A cluster asks for what isn't spoken here, a way to log in or a version of Kafka's protocol; no data is wrong."""

    exit_code = 3


class Retriable(ReplicatorError):
    """A step failed without effect, and may succeed when it is tried again."""

    exit_code = 3


class TopicMissing(Retriable):
    """A cluster answers that it has no such topic or partition. A broker that starts may answer so for a moment."""


class Abortable(ReplicatorError):
    """The open transaction must be aborted and the source rewound to the committed position."""

    exit_code = 3


class UnknownOutcome(ReplicatorError):
    """A commit may or may not have been applied: discard the producer and start over at the fence."""

    exit_code = 3


class Fenced(ReplicatorError):
    """Another producer initialised this lane's transactional id, or the transaction timed out."""

    exit_code = 5


class TakenOver(ReplicatorError):
    """Another owner or another generation runs this flow now; this process must not go on.

    `by_generation`: the generation under which the lanes ran is closed, or about to be; whoever has opened another one.
    `half_done`: nobody has: the number of the one that is being prepared, and since when this process has seen it, by
    its monotonic clock.
    """

    exit_code = 5
    by_generation = False
    half_done: tuple[int, float] | None = None

    @classmethod
    def of_generation(cls, why: str, half_done: tuple[int, float] | None = None) -> TakenOver:
        """Make one of a generation that is over, or is to be ended by who finishes a change (`half_done`)."""
        error = cls(why)
        error.by_generation, error.half_done = True, half_done
        return error


class ChangeRefused(TakenOver):
    """What the control topic says forbids the change: to ask again at once doesn't help."""


class FlowFrozen(ChangeRefused):
    """The flow was failed over: nothing is copied until a command undoes that."""


class HookFailed(ReplicatorError):
    """A command that a flow file names for a step can't be started, ended with another code than 0, or not in time."""

    exit_code = 6


class VerdictUnreadable(ReplicatorError):
    """The last verdict of a failover can't be read back as it was written."""

    exit_code = 4


class SchemaRefused(ReplicatorError):
    """A schema registry refuses what was asked of it. `status` and `code`: HTTP's, and the registry's own."""

    exit_code = 4

    def __init__(self, message: str, status: int = 0, code: int = 0) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class SchemasInConflict(ReplicatorError):
    """A schema of the source's registry can't have its id or version at the target's; nothing was written over."""

    exit_code = 4


class Incident(ReplicatorError):
    """Something only a person may decide: going on could lose, double or alter records.

    `name` is a stable word for alerts and policies, `offset` the source offset where the flow stands
    (-1 when none applies), `advice` says what to do next: never empty, `incident_kinds` has one for each name. `end` is
    one past the last source offset that going on would leave out (-1: that isn't known, or nothing is left out). Two
    incidents with the same facts are equal.
    """

    exit_code = 4

    def __init__(
        self,
        name: str,
        detail: str,
        *,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        end: int = -1,
        advice: str = "",
    ) -> None:
        self.name = name
        self.detail = detail
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.end = end if end >= 0 or name not in ONE_RECORD or offset < 0 else offset + 1
        self.advice = advice or advice_for(name)
        where = f" at {topic}" if topic else ""
        where += f"[{partition}]" if topic and partition >= 0 else ""
        where += f" offset {offset}" if offset >= 0 else ""
        super().__init__(f"{name}{where}: {detail}. {self.advice}")

    @property
    def facts(self) -> dict[str, str | int]:
        """All that is known, by field name: what logs and reports show."""
        return {
            "name": self.name,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "detail": self.detail,
            "advice": self.advice,
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Incident) and self.facts == other.facts

    def __hash__(self) -> int:
        return hash(tuple(self.facts.values()))

    def of_flow(self, flow: str) -> Incident:
        """Return the same incident, with commands in its advice that can be typed as they stand, but for the flow
        file.
        """
        return Incident(
            self.name,
            self.detail,
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            end=self.end,
            advice=with_place_of_id(self.advice, flow),
        )

    def at(self, partition: int, offset: int) -> Incident:
        """Return the same incident, of one partition and at the offset where the flow stands there."""
        return Incident(
            self.name,
            self.detail,
            topic=self.topic,
            partition=partition,
            offset=offset,
            end=self.end,
            advice=self.advice,
        )


class Fatal(ReplicatorError):
    """A state that the code rules out: a bug here or in a library."""

    exit_code = 70
