"""Limits of the target that would stop a flow or a record of it, for `inspect.planning`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from replicator.config import Flow, routing
from replicator.coupling.evidence import OFFSETS_TOPIC
from replicator.flow.topic_rules import MAX_MESSAGE_BYTES
from replicator.kafka.topic_questions import TopicInfo


def limit_faults(flow: Flow, broker: Mapping[str, str]) -> Iterator[str]:
    """Yield limits of the target's brokers that would stop the flow, or lose its positions. Pure."""
    timeout_ms, max_ms = flow.limits.transaction_timeout_ms, broker.get("transaction.max.timeout.ms")
    if max_ms is not None and timeout_ms > int(max_ms):
        yield f"limits.transaction_timeout_ms is {timeout_ms}, the target allows {max_ms} (transaction.max.timeout.ms)"
    session_ms = flow.limits.session_timeout_ms
    for key, below in (("group.min.session.timeout.ms", True), ("group.max.session.timeout.ms", False)):
        bound_ms = int(broker.get(key, session_ms))
        if session_ms < bound_ms if below else session_ms > bound_ms:
            most = "at least" if below else "at most"
            yield f"limits.session_timeout_ms is {session_ms}, the target wants {most} {bound_ms} ({key})"
    retention_min = broker.get("offsets.retention.minutes")
    if retention_min is not None and int(retention_min) * 60_000 < 2 * flow.limits.recommit_interval_ms:
        yield (
            f"the target forgets positions after {retention_min} minutes (offsets.retention.minutes); "
            f"limits.recommit_interval_ms is {flow.limits.recommit_interval_ms} and must be less than half of that"
        )


def offsets_topic_faults(flow: Flow, configs: Mapping[str, str]) -> Iterator[tuple[bool, str]]:
    """Yield what of the target's `__consumer_offsets` would remove positions, and whether that stops the flow: each
    position is committed again in `limits.recommit_interval_ms`. `configs`: of that topic. Pure."""
    policy = configs.get("cleanup.policy", "compact")
    if "delete" not in policy.split(","):
        return
    said = f"the target's {OFFSETS_TOPIC} has cleanup.policy={policy}, and Kafka needs compact: it removes positions"
    retention_ms, recommit_ms = int(configs.get("retention.ms", "-1")), flow.limits.recommit_interval_ms
    if 0 <= retention_ms < 2 * recommit_ms:
        yield (
            True,
            f"{said} after {retention_ms} ms (retention.ms); limits.recommit_interval_ms is {recommit_ms} and must be "
            "less than half of that",
        )
    else:
        yield False, f"{said} that no worker commits again for as long as its retention.ms or retention.bytes allow"


def size_warnings(flow: Flow, sources: Mapping[str, TopicInfo], targets: Mapping[str, TopicInfo]) -> Iterator[str]:
    """Yield a warning of records that could be too large for the target. Pure."""
    for name, info in sources.items():
        there = targets.get(routing.target_topic(flow, name))
        largest = int(info.configs.get(MAX_MESSAGE_BYTES, "0"))
        limit = there.configs.get(MAX_MESSAGE_BYTES) if there else None
        if there is not None and limit is not None and largest > int(limit):
            yield (
                f"target topic {there.name!r} takes {limit} bytes, source topic {name!r} {largest} "
                f"({MAX_MESSAGE_BYTES}); a larger record would stop its partition"
            )
    if flow.target.compression not in ("", "zstd"):
        yield (
            f"records are written with compression.type={flow.target.compression}: one that the source holds better "
            f"compressed could be larger than the target takes ({MAX_MESSAGE_BYTES}), which would stop its partition; "
            "without that property records that are too large are sent with zstd"
        )
