"""What an error of the source reader means for the partition that it names. Used by `source`."""

from __future__ import annotations

from confluent_kafka import KafkaError

from replicator.kafka import failures
from replicator.model.errors import Incident, NotAllowed, ReplicatorError, Retriable, TopicMissing
from replicator.model.partition import Partition

TRUNCATED = ("truncation detected", "No epoch found")  # both come under the code of an offset reset
OUT_OF_RANGE = ("offset not available", "out of range")
WAITED_OUT = failures.UNREACHABLE | failures.TRANSIENT | failures.CREDENTIALS | {KafkaError._MAX_POLL_EXCEEDED}
"""librdkafka tries again by itself and reads on at the same offset."""
CORRUPT = frozenset({KafkaError._BAD_MSG, KafkaError.INVALID_MSG, KafkaError._BAD_COMPRESSION, KafkaError._UNDERFLOW})


def classify(error: KafkaError, cluster: str, at: Partition, offset: int) -> ReplicatorError | None:
    """Make the error of one partition, None where librdkafka waits it out.

    Args:
        cluster: name of the source in the flow file.
        offset: the next offset to read of the partition.
    """
    code, text = error.code(), failures.reason(error)
    if code in failures.MISSING:
        return TopicMissing(failures.describe(error, cluster, f"read {at}"))
    if code in failures.NOT_ALLOWED:
        return not_allowed(error, cluster, at)
    if code in WAITED_OUT:
        return None
    if code == KafkaError._LOG_TRUNCATION or (code == KafkaError._AUTO_OFFSET_RESET and _any(TRUNCATED, text)):
        return _incident("source_truncated", f"{text} (the leader epoch says that the log was cut)", at, offset)
    if code == KafkaError.OFFSET_OUT_OF_RANGE or (code == KafkaError._AUTO_OFFSET_RESET and _any(OUT_OF_RANGE, text)):
        return _incident("source_records_gone", text, at, offset)
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return _incident("record_too_large", text, at, offset)
    if code in CORRUPT:
        return _incident("source_corrupt", f"{error.name()}: {text}", at, offset)
    return Retriable(failures.describe(error, cluster, f"read {at}"))


def not_allowed(error: KafkaError, cluster: str, at: Partition) -> NotAllowed:
    """Name the right that a reader of this partition lacks."""
    return NotAllowed(failures.describe(error, cluster, f"read {at}", f"Read on topic {at.topic!r}"), [at])


def _any(phrases: tuple[str, ...], text: str) -> bool:
    return any(phrase.lower() in text.lower() for phrase in phrases)


def _incident(name: str, detail: str, at: Partition, offset: int) -> Incident:
    return Incident(name, detail, topic=at.topic, partition=at.partition, offset=offset)
