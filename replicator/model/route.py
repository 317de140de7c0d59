"""Where a source partition is copied to, and what stops it before its first record. Pure values.

Made by `flow.setup` from what both clusters list, used by lanes and jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from replicator.model.errors import Incident
from replicator.model.origins import NONE, Origins
from replicator.model.partition import Partition
from replicator.model.timestamps import UNBOUNDED, TimestampBounds


@dataclass(frozen=True, slots=True)
class Route:
    """Where one source partition goes, with the ids of both topics as they were when they were listed.

    `stopped` is an incident of the topic that its listing showed: nothing is copied, the position is kept alive.
    `waiting` says in the same way why nothing can be copied now, such as a missing right; it is asked again at every
    discovery. A topic that does not exist at the target has an empty `target_topic_id`. `timestamps`: which ones the
    target topic takes. `origins`: where the source has the topic from, where other flows write it. `message_bytes_max`:
    max.message.bytes of the target topic, 0 where that isn't known; `compression`: its compression.type, else empty.
    """

    source: Partition
    target: Partition
    source_topic_id: str
    target_topic_id: str
    stopped: Incident | None = None
    waiting: str = ""
    timestamps: TimestampBounds = UNBOUNDED
    origins: Origins = NONE
    message_bytes_max: int = 0
    compression: str = ""
