"""librdkafka properties of every client that the plane opens, and why each one is what it is."""

from __future__ import annotations

from typing import Any

from replicator.config import Cluster, Flow
from replicator.config.properties import FETCH_BYTES as ALL_BYTES
from replicator.config.properties import FETCH_PARTITION_BYTES as ONE_BYTES
from replicator.kafka.fetch_size import PARTITIONS_AT_ONCE, WHOLE_FETCH, FetchStep
from replicator.kafka.token_command import Oauth, oauth_properties
from replicator.model import names

Properties = dict[str, str | int | float | bool | Oauth | None]
NO_TOPICS: Properties = {"allow.auto.create.topics": False}
"""For every client. A producer, and so an administrating client, asks for topics so that a broker with
auto.create.topics.enable makes those that aren't there: one that was deleted would come back with the broker's number
of partitions, and without its configs."""
SILENT: Properties = {"log_level": 0}
"""For clients of which nobody takes the log lines, see `client_log`: last, so that it holds whatever the file says."""


def client_properties(cluster: Cluster, **own: Any) -> dict[str, Any]:
    """Return the librdkafka settings of a client that looks and administrates; `own` wins over the file. Raises
    Unreachable: a token command has no token, here and in the other functions."""
    quiet = {} if "debug" in cluster.properties or "log_level" in cluster.properties else {"log_level": 0}
    return {
        "client.id": "eos-replicate",
        "enable.metrics.push": "false",
        **quiet,
        **cluster.properties,
        **oauth_properties(cluster),
        **NO_TOPICS,
        **own,
    }


def _base(cluster: Cluster, flow: Flow, role: str) -> Properties:
    given = {key: value for key, value in cluster.properties.items() if key not in (ALL_BYTES, *ONE_BYTES)}
    return {
        "socket.connection.setup.timeout.ms": min(flow.limits.connect_timeout_ms, 10_000),
        "reconnect.backoff.ms": 20,  # a restarted broker is found again at once,
        "reconnect.backoff.max.ms": max(1000, int(given.get("reconnect.backoff.ms", 0))),  # a dead one once a second
        "socket.nagle.disable": True,
        **given,
        **oauth_properties(cluster),
        **NO_TOPICS,
        "client.id": f"eos-replicate.{flow.name}.{role}",
    }


FETCH_BYTES, FETCH_BULK_BYTES = 2**20, 2**22  # of one partition; in bulk it is the only one
FETCH_RESPONSE_BYTES = 2**24
FETCH_BYTES_MIN = 1_000
"""The least that message.max.bytes may be."""
BATCH_BYTES_MAX, MESSAGE_BYTES_MAX = 1_000_000, 1_000_000_000  # librdkafka's default, librdkafka's maximum
RESPONSE_OVERHEAD_BYTES = 2**20
SOCKET_TIMEOUT_MS, SOCKET_TIMEOUT_MS_MAX = 60_000, 300_000  # librdkafka's default, librdkafka's maximum
RECORD_OVERHEAD_BYTES = 1_024
"""librdkafka counts a record's key, value and headers and its largest possible framing (50 bytes) against
message.max.bytes: with this much more our own limit decides, which counts what is really sent."""


READER_BACKOFF_MS = 250
"""Of the reader of source records. librdkafka (2.16) bootstraps again whenever no broker answers, with new broker
handles that begin with the shortest pause: with 20 ms it connected 90 times a second for as long as the source was
away. Without bootstrapping it doesn't find a cluster that has come back at other addresses."""


def fetch_bytes_max(flow: Flow, record_bytes_max: int) -> int:
    """Find the largest batch that the source reader takes: what the source may hold has no lower limit than the
    target's."""
    return min(MESSAGE_BYTES_MAX, max(FETCH_RESPONSE_BYTES, flow.limits.record_bytes_max, record_bytes_max))


def fetch_bytes(flow: Flow, record_bytes_max: int, *, bulk: bool, step: FetchStep = WHOLE_FETCH) -> tuple[int, int]:
    """Find how much a fetch from the source asks for, in all and of one partition: what the flow file says, within what
    the reader takes, and less by `step`. A broker sends a batch that is larger all the same, alone (KIP-74)."""
    most, given = fetch_bytes_max(flow, record_bytes_max), flow.source.properties
    part = next((given[name] for name in ONE_BYTES if name in given), FETCH_BULK_BYTES if bulk else FETCH_BYTES)
    of_partition = int(part) // step.divisor
    in_all = min(int(given.get(ALL_BYTES, most)), most, PARTITIONS_AT_ONCE * of_partition if step.step else most)
    in_all = max(FETCH_BYTES_MIN, in_all)
    return in_all, max(1, min(of_partition, in_all))


def source_consumer(
    flow: Flow, *, record_bytes_max: int = 0, bulk: bool = False, step: FetchStep = WHOLE_FETCH
) -> Properties:
    """Configure the reader of source records: never resets, never commits, checks every CRC.

    Args:
        record_bytes_max: the largest record or batch that the target takes.
        bulk: one partition is read for its records' sake, in large fetches.
        step: how much is asked for at once.
    """
    limits, fetched, given = flow.limits, fetch_bytes_max(flow, record_bytes_max), flow.source.properties
    backoff_ms = min(READER_BACKOFF_MS, int(given.get("reconnect.backoff.max.ms", READER_BACKOFF_MS)))
    in_all, of_partition = fetch_bytes(flow, record_bytes_max, bulk=bulk, step=step)
    return {
        **_base(flow.source, flow, "source"),
        "reconnect.backoff.ms": given.get("reconnect.backoff.ms", backoff_ms),
        "group.id": names.position_group(flow.name),  # required by librdkafka; nothing is ever committed here
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",  # invariant 8: an offset that is gone is an incident, not a guess
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,  # positions advance past markers and aborted records
        "check.crcs": True,
        "queued.max.messages.kbytes": max(1, limits.fetch_queue_bytes_max // 1024),
        "queued.min.messages": 100_000,
        "message.max.bytes": min(BATCH_BYTES_MAX, in_all),  # librdkafka wants it to be no larger than a fetch
        "fetch.message.max.bytes": of_partition,
        "fetch.max.bytes": in_all,
        **_patience(flow, step),
        "receive.message.max.bytes": fetched + RESPONSE_OVERHEAD_BYTES,
        "fetch.wait.max.ms": 500,  # answered at once where something was written; idle, each lane asks each broker
        "fetch.queue.backoff.ms": 5,  # a full queue is looked at again soon, not a second later
        "fetch.error.backoff.ms": 50,
        "topic.metadata.refresh.interval.ms": 30_000,
    }


def _patience(flow: Flow, step: FetchStep) -> Properties:
    """Configure how long an answer is waited for."""
    wait_ms = int(flow.source.properties.get("socket.timeout.ms", SOCKET_TIMEOUT_MS))
    return {"socket.timeout.ms": min(wait_ms * step.patience, SOCKET_TIMEOUT_MS_MAX)} if step.step else {}


def probing_consumer(flow: Flow, record_bytes_max: int, partitions: int) -> Properties:
    """Configure a reader that finds the partition whose next batch is too large for `source_consumer`.

    It asks for one byte and is sent one batch. Its limit is lower by what a response about many partitions holds
    besides: else a batch could be too large beside the others and not alone.
    """
    fetched = fetch_bytes_max(flow, record_bytes_max)
    overhead = min(RESPONSE_OVERHEAD_BYTES, 1_024 * partitions)
    return {
        **source_consumer(flow, record_bytes_max=record_bytes_max),
        "log_level": 0,
        "message.max.bytes": FETCH_BYTES_MIN,
        "fetch.message.max.bytes": 1,
        "fetch.max.bytes": FETCH_BYTES_MIN,
        "receive.message.max.bytes": fetched + RESPONSE_OVERHEAD_BYTES - overhead,
        "queued.min.messages": 1,
        "fetch.wait.max.ms": 50,  # at its end a partition says so soon
    }


LINGER_MS, LINGER_BULK_MS = 5, 20  # flush() sends at once, so neither delays a commit


def lane_producer(
    flow: Flow,
    transactional_id: str,
    *,
    batch_bytes_max: int = BATCH_BYTES_MAX,
    record_bytes_max: int = 0,
    bulk: bool = False,
    compress: bool = False,
) -> Properties:
    """Configure the lane's transactional producer; in exactly_once it writes the records too.

    Args:
        batch_bytes_max: smallest max.message.bytes of the target's topics, which no batch may exceed.
        record_bytes_max: the largest one.
        bulk: batches wait longer to be filled, which costs both sides less CPU and nobody notices in large
            transactions.
        compress: unless the file says how; zstd, which leaves no record larger than the source's codec did.
    """
    limits = flow.limits
    return {
        **_base(flow.target, flow, "lane"),
        "transactional.id": transactional_id,
        **_transaction_times(flow, limits.transaction_timeout_ms),
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 5,
        # After "all brokers down" librdkafka (2.16) re-bootstraps with new broker handles, but keeps the old one as the
        # group's coordinator: TxnOffsetCommit then waits for ever, past every timeout. A new lane bootstraps anyway.
        "metadata.recovery.strategy": "none",
        # A producer that is given up while it waits for such a coordinator ends once any of its connections changes.
        # More than socket.timeout.ms: librdkafka takes one for idle on which an answer is waited for.
        "connections.max.idle.ms": 120_000,
        "statistics.interval.ms": 500,  # EndTxn is counted there: a hidden resend must be seen
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 500,
        **_producing(flow, batch_bytes_max, record_bytes_max, compress=compress),
        "linger.ms": LINGER_BULK_MS if bulk else LINGER_MS,
    }


def _transaction_times(flow: Flow, timeout_ms: int) -> Properties:
    """Return the time of a transaction, and that of a socket, which the file may have: librdkafka wants it to end no
    later."""
    given = flow.target.properties.get("socket.timeout.ms")
    socket: Properties = {} if given is None else {"socket.timeout.ms": min(int(given), timeout_ms)}
    return {"transaction.timeout.ms": timeout_ms, "message.timeout.ms": timeout_ms, **socket}


def plain_producer(
    flow: Flow, *, batch_bytes_max: int = BATCH_BYTES_MAX, record_bytes_max: int = 0, compress: bool = False
) -> Properties:
    """Configure the writer of records outside the transaction, for the two weaker delivery modes; limits as of
    `lane_producer`."""
    once_at_most = flow.delivery.value == "at_most_once"
    return {
        **_base(flow.target, flow, "plain"),
        "enable.idempotence": not once_at_most,
        "acks": "1" if once_at_most else "all",
        **({"message.send.max.retries": 0} if once_at_most else {}),
        **_producing(flow, batch_bytes_max, record_bytes_max, compress=compress),
        "message.timeout.ms": flow.limits.request_timeout_ms,
    }


def note_producer(flow: Flow, timeout_s: float) -> Properties:
    """Configure the writer of a single record outside any transaction, which may be written twice."""
    return {
        **_base(flow.target, flow, "notes"),
        "acks": "all",
        "linger.ms": 0,
        "message.timeout.ms": round(timeout_s * 1000),
        **SILENT,
    }


def heartbeat_producer(flow: Flow) -> Properties:
    """Configure the writer of heartbeat records, which may be written twice, at the source."""
    return {
        **_base(flow.source, flow, "heartbeats"),
        "acks": "all",
        "linger.ms": 0,
        "message.timeout.ms": flow.limits.request_timeout_ms,
        "queue.buffering.max.messages": 100,
        **SILENT,
    }


def _producing(flow: Flow, batch_bytes_max: int, record_bytes_max: int, *, compress: bool) -> Properties:
    limits = flow.limits
    record_bytes = max(limits.record_bytes_max, record_bytes_max)
    return {
        "request.timeout.ms": limits.request_timeout_ms,
        # Checked before compression, the broker's limit after it: so the largest, and no batch above the smallest.
        "message.max.bytes": min(record_bytes + RECORD_OVERHEAD_BYTES, MESSAGE_BYTES_MAX),
        "queue.buffering.max.kbytes": max(1, limits.produce_queue_bytes_max // 1024),
        "queue.buffering.max.messages": 100_000,
        "topic.metadata.refresh.interval.ms": 10_000,  # a leader that comes back unannounced is found again
        "batch.size": max(1, min(BATCH_BYTES_MAX, batch_bytes_max)),  # librdkafka counts the request's header too
        "batch.num.messages": 20_000,
        "linger.ms": LINGER_MS,
        "compression.type": flow.target.compression or ("zstd" if compress else "none"),
        "sticky.partitioning.linger.ms": 0,
    }


def reader(cluster: Cluster, flow: Flow, *, committed: bool) -> Properties:
    """Configure a consumer that reads an internal or target topic by assignment; `committed` picks the isolation
    level."""
    return {
        **_base(cluster, flow, "reader"),
        "group.id": names.position_group(flow.name),
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 5,  # each partition is read to its end and would wait there that long
        "fetch.error.backoff.ms": 50,
        # Notes of groups are compressed to a twentieth: the client holds all of what a response has.
        "fetch.message.max.bytes": 128 * 1024,
        "queued.max.messages.kbytes": 8 * 1024,
        "fetch.queue.backoff.ms": 5,
    }


def scanning_reader(cluster: Cluster, flow: Flow, *, record_bytes_max: int = 0) -> Properties:
    """Configure a consumer that reads much of one partition, committed records only, and holds as little of it as the
    source reader. It takes what that takes with the same `record_bytes_max`."""
    fetched = fetch_bytes_max(flow, record_bytes_max)
    return {
        **reader(cluster, flow, committed=True),
        "queued.max.messages.kbytes": max(1, flow.limits.fetch_queue_bytes_max // 1024),
        "fetch.message.max.bytes": FETCH_BULK_BYTES,
        "fetch.max.bytes": fetched,
        "receive.message.max.bytes": fetched + RESPONSE_OVERHEAD_BYTES,
    }


def group_member(flow: Flow, client_id: str) -> Properties:
    """Configure a worker's membership in the group that shares out the lanes. Protocol and assignor are fixed here:
    all workers of a flow must have the same, and KIP-848's times are not the client's to set."""
    session_ms = flow.limits.session_timeout_ms
    return {
        **_base(flow.target, flow, "worker"),
        "client.id": client_id,
        "group.id": names.workers_group(flow.name),
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "heartbeat.interval.ms": min(500, session_ms // 4),
        "session.timeout.ms": session_ms,
        "max.poll.interval.ms": max(30_000, session_ms),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "topic.metadata.refresh.interval.ms": 10_000,  # a lanes topic that somebody grows is seen
        **SILENT,
    }


def control_producer(flow: Flow) -> Properties:
    """Configure the writer of the control topic, under its own transactional id."""
    return lane_producer(flow, names.control_id(flow.name))


def map_index_producer(flow: Flow) -> Properties:
    """Configure the writer of the offset map's index, under its own transactional id."""
    return lane_producer(flow, names.map_index_id(flow.name), compress=True)


NOTES_BATCH_BYTES_MAX = 512 * 1024
"""Also for a target that takes less than 1 MiB; a record of notes has half of it at most."""


def groups_producer(flow: Flow) -> Properties:
    """Configure the writer of the flow's notes of consumer groups, under its own transactional id."""
    made = lane_producer(flow, names.groups_id(flow.name), batch_bytes_max=NOTES_BATCH_BYTES_MAX, compress=True)
    return {**made, **_short_transactions(flow)}


DECISION_TIMEOUT_MS = 10_000


def decision_producer(flow: Flow) -> Properties:
    """Configure the writer of operators' decisions: as `control_producer`, but what a killed command has left open
    hides the control topic from lanes for ten seconds at most."""
    return {**control_producer(flow), **_short_transactions(flow)}


def position_producer(flow: Flow, transactional_id: str) -> Properties:
    """Configure what writes the positions that an operator sets, under the id of its generation's only lane; what a
    killed command has left open keeps the flow from starting for ten seconds at most."""
    return {**lane_producer(flow, transactional_id), **_short_transactions(flow)}


def _short_transactions(flow: Flow) -> Properties:
    return _transaction_times(flow, min(DECISION_TIMEOUT_MS, flow.limits.transaction_timeout_ms))
