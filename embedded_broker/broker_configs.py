"""The broker's settings under Kafka's names, as far as clients ask for them."""

from __future__ import annotations

from collections.abc import Mapping

from embedded_broker.config import BrokerConfig
from embedded_broker.topic_configs import CONFIGS, Kind


def broker_configs(config: BrokerConfig) -> Mapping[str, tuple[Kind, str]]:
    """Name → type and value."""
    return {
        "auto.create.topics.enable": (Kind.BOOLEAN, str(config.auto_create_topics).lower()),
        "broker.id": (Kind.INT, str(config.node_id)),
        "default.replication.factor": (Kind.INT, "1"),
        "group.max.session.timeout.ms": (Kind.INT, str(config.group_session_timeout_ms_max)),
        "group.min.session.timeout.ms": (Kind.INT, str(config.group_session_timeout_ms_min)),
        "log.cleanup.policy": (Kind.LIST, CONFIGS["cleanup.policy"].default),
        "log.dirs": (Kind.STRING, str(config.data_dir)),
        "log.message.timestamp.after.max.ms": (Kind.LONG, CONFIGS["message.timestamp.after.max.ms"].default),
        "log.message.timestamp.before.max.ms": (Kind.LONG, CONFIGS["message.timestamp.before.max.ms"].default),
        "log.message.timestamp.type": (Kind.STRING, CONFIGS["message.timestamp.type"].default),
        "log.retention.bytes": (Kind.LONG, CONFIGS["retention.bytes"].default),
        "log.retention.ms": (Kind.LONG, CONFIGS["retention.ms"].default),
        "message.max.bytes": (Kind.INT, CONFIGS["max.message.bytes"].default),
        "min.insync.replicas": (Kind.INT, CONFIGS["min.insync.replicas"].default),
        "num.partitions": (Kind.INT, str(config.partitions_default)),
        "offset.metadata.max.bytes": (Kind.INT, str(config.offset_metadata_bytes_max)),
        "offsets.retention.minutes": (Kind.INT, str(config.offsets_retention_ms // 60_000)),
        "producer.id.expiration.ms": (Kind.INT, str(config.producer_id_expiration_ms)),
        "socket.request.max.bytes": (Kind.INT, str(config.frame_bytes_max)),
        "transaction.max.timeout.ms": (Kind.INT, str(config.transaction_timeout_ms_max)),
        "transactional.id.expiration.ms": (Kind.INT, str(config.transactional_id_expiration_ms)),
    }
