"""The topic configs that `append_validation` checks a batch against, as numbers.

`Partition.configure` computes them once per change, because Produce needs them thousands of times a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embedded_broker.topic_configs import CONFIGS, is_compacted, number, segment_bytes, value

BEFORE_UNBOUNDED_MS = int(CONFIGS["message.timestamp.before.max.ms"].default)


@dataclass(frozen=True, slots=True)
class Rules:
    """Limits of batches in one topic. Sizes in bytes, times in ms."""

    message_bytes_max: int
    segment_bytes: int
    log_append_time: bool
    before_ms_max: int
    after_ms_max: int
    needs_keys: bool

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> Rules:
        """From a topic's own configs."""
        return cls(
            number(configs, "max.message.bytes"),
            segment_bytes(configs),
            value(configs, "message.timestamp.type") == "LogAppendTime",
            number(configs, "message.timestamp.before.max.ms"),
            number(configs, "message.timestamp.after.max.ms"),
            is_compacted(configs),
        )
