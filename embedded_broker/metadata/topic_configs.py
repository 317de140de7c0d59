"""Topic configs: names, types, defaults and checks. All that Kafka 4 knows are stored and described.

What they do here: cleanup.policy=delete with retention.ms and retention.bytes; cleanup.policy=compact with
delete.retention.ms, {min,max}.compaction.lag.ms and min.cleanable.dirty.ratio, and then null keys are refused;
segment.bytes, segment.ms, max.message.bytes, message.timestamp.*, compression.type (at a level of the codec's own) and
min.insync.replicas. The others are only stored.
Defaults are those of org.apache.kafka.storage.internals.log.LogConfig.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from embedded_broker.storage.log_config import LogConfig
from kafka_records.compression import COMPRESSION_TYPES

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1


class ConfigKind(IntEnum):
    """Types of configs as DescribeConfigs numbers them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class InvalidConfig(ValueError):
    """A name that isn't known, or a value out of range; the text says which."""


@dataclass(frozen=True, slots=True)
class Config:
    """One topic config. `default` is in the text form that DescribeConfigs gives."""

    kind: ConfigKind
    default: str
    low: float = 0
    high: float = LONG_MAX
    allowed: frozenset[str] = frozenset()


def _number(kind: ConfigKind, default: int | str, low: float = 0, high: float | None = None) -> Config:
    return Config(
        kind, str(default), low, high if high is not None else (INT_MAX if kind is ConfigKind.INT else LONG_MAX)
    )


def _choice(default: str, *allowed: str, kind: ConfigKind = ConfigKind.STRING) -> Config:
    return Config(kind, default, allowed=frozenset(allowed))


CONFIGS: Mapping[str, Config] = {
    "cleanup.policy": _choice("delete", "delete", "compact", kind=ConfigKind.LIST),
    "compression.gzip.level": _number(ConfigKind.INT, -1, -1, 9),
    "compression.lz4.level": _number(ConfigKind.INT, 9, 1, 17),
    "compression.type": _choice("producer", "producer", *COMPRESSION_TYPES),
    "compression.zstd.level": _number(ConfigKind.INT, 3, -131072, 22),
    "delete.retention.ms": _number(ConfigKind.LONG, 86_400_000),
    "file.delete.delay.ms": _number(ConfigKind.LONG, 60_000),
    "flush.messages": _number(ConfigKind.LONG, LONG_MAX, 1),
    "flush.ms": _number(ConfigKind.LONG, LONG_MAX),
    "follower.replication.throttled.replicas": Config(ConfigKind.LIST, ""),
    "index.interval.bytes": _number(ConfigKind.INT, 4096),
    "leader.replication.throttled.replicas": Config(ConfigKind.LIST, ""),
    "local.retention.bytes": _number(ConfigKind.LONG, -2, -2),
    "local.retention.ms": _number(ConfigKind.LONG, -2, -2),
    "max.compaction.lag.ms": _number(ConfigKind.LONG, LONG_MAX, 1),
    "max.message.bytes": _number(ConfigKind.INT, 1_048_588),
    "message.timestamp.after.max.ms": _number(ConfigKind.LONG, 3_600_000),
    "message.timestamp.before.max.ms": _number(ConfigKind.LONG, LONG_MAX),
    "message.timestamp.type": _choice("CreateTime", "CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": _number(ConfigKind.DOUBLE, "0.5", 0, 1),
    "min.compaction.lag.ms": _number(ConfigKind.LONG, 0),
    "min.insync.replicas": _number(ConfigKind.INT, 1, 1),
    "preallocate": _choice("false", "true", "false", kind=ConfigKind.BOOLEAN),
    "remote.log.copy.disable": _choice("false", "true", "false", kind=ConfigKind.BOOLEAN),
    "remote.log.delete.on.disable": _choice("false", "true", "false", kind=ConfigKind.BOOLEAN),
    "remote.storage.enable": _choice("false", "true", "false", kind=ConfigKind.BOOLEAN),
    "retention.bytes": _number(ConfigKind.LONG, -1, -(2**63)),
    "retention.ms": _number(ConfigKind.LONG, 604_800_000, -1),
    "segment.bytes": _number(ConfigKind.INT, 1_073_741_824, 1_048_576),
    "segment.index.bytes": _number(ConfigKind.INT, 10_485_760, 4),
    "segment.jitter.ms": _number(ConfigKind.LONG, 0),
    "segment.ms": _number(ConfigKind.LONG, 604_800_000, 1),
    "unclean.leader.election.enable": _choice("false", "true", "false", kind=ConfigKind.BOOLEAN),
}


CODECS: Mapping[str, int | None] = {"producer": None, **COMPRESSION_TYPES}
"""Values of compression.type, and how batches name them."""


def check(name: str, value: str) -> None:
    """Raise InvalidConfig unless Kafka would take `value` for the topic config `name`."""
    config = CONFIGS.get(name)
    if config is None:
        raise InvalidConfig(f"Unknown topic config name: {name}")
    problem = _problem(name, config, value.strip())
    if problem is not None:
        raise InvalidConfig(f"Invalid value {value} for configuration {name}: {problem}")


def _problem(name: str, config: Config, value: str) -> str | None:
    if config.kind is ConfigKind.LIST:
        parts = parts_of(value)
        if name in REPLICA_LISTS:
            return None if parts == ["*"] or all(map(_REPLICA.fullmatch, parts)) else "* or partition:broker, …"
        return None if config.allowed.issuperset(parts) else f"out of {sorted(config.allowed)}"
    if config.allowed:
        given = value.lower() if config.kind is ConfigKind.BOOLEAN else value
        return None if given in config.allowed else f"one of {sorted(config.allowed)}"
    if config.kind not in _PARSERS:
        return None
    try:
        number = _PARSERS[config.kind](value)
    except ValueError:
        return "not a number"
    if "_" in value or not config.low <= number <= config.high or (name, number) == ("compression.gzip.level", 0):
        return f"a number from {config.low} to {config.high}"
    return None


_PARSERS: Mapping[ConfigKind, Callable[[str], float]] = {
    ConfigKind.INT: int,
    ConfigKind.LONG: int,
    ConfigKind.DOUBLE: float,
}
REPLICA_LISTS = ("follower.replication.throttled.replicas", "leader.replication.throttled.replicas")
_REPLICA = re.compile(r"[0-9]+:[0-9]+")


def parts_of(value: str) -> list[str]:
    """Return the elements of a list."""
    return [part.strip() for part in value.split(",") if part.strip()]


def check_together(configs: Mapping[str, str]) -> None:
    """Raise InvalidConfig if a topic can't have all of these, each of which is right by itself."""
    for name, text in configs.items():
        check(name, text)
    lags = number(configs, "min.compaction.lag.ms"), number(configs, "max.compaction.lag.ms")
    if lags[0] > lags[1]:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({lags[0]}) > max.compaction.lag.ms ({lags[1]})"
        )
    if value(configs, "remote.storage.enable").lower() == "true":
        raise InvalidConfig("Tiered Storage functionality is disabled in the broker.")


def value(configs: Mapping[str, str], name: str) -> str:
    """Return what holds for a topic with these own configs."""
    return configs.get(name, CONFIGS[name].default)


def number(configs: Mapping[str, str], name: str) -> int:
    """Return what `value` does, for whole numbers."""
    return int(value(configs, name))


def log_config(configs: Mapping[str, str]) -> LogConfig:
    """Return a topic's own configs, and the defaults of the others, as its partitions need them."""
    policy, segment_ms = value(configs, "cleanup.policy"), number(configs, "segment.ms")
    compacts, lag_ms_max = "compact" in policy, number(configs, "max.compaction.lag.ms")
    return LogConfig(
        segment_bytes=number(configs, "segment.bytes"),
        segment_ms=min(segment_ms, lag_ms_max) if compacts else segment_ms,  # LogConfig.maxSegmentMs
        message_bytes_max=number(configs, "max.message.bytes"),
        compression=CODECS[value(configs, "compression.type")],
        insync_min=number(configs, "min.insync.replicas"),
        log_append_time=value(configs, "message.timestamp.type") == "LogAppendTime",
        before_ms_max=number(configs, "message.timestamp.before.max.ms"),
        after_ms_max=number(configs, "message.timestamp.after.max.ms"),
        deletes="delete" in policy,
        retention_ms=number(configs, "retention.ms"),
        retention_bytes=number(configs, "retention.bytes"),
        compacts=compacts,
        delete_retention_ms=number(configs, "delete.retention.ms"),
        compaction_lag_ms_min=number(configs, "min.compaction.lag.ms"),
        compaction_lag_ms_max=lag_ms_max,
        dirty_ratio_min=float(value(configs, "min.cleanable.dirty.ratio")),
    )
