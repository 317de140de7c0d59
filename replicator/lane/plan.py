"""What one lane is to do. Made by `flow.worker` and by jobs, carried out by `lane.driver`. Pure values."""

from __future__ import annotations

from dataclasses import dataclass

from replicator.config import Flow
from replicator.model import names
from replicator.model.route import Route
from replicator.state.generation import LaneAssignment


@dataclass(frozen=True, slots=True)
class LanePlan:
    """One lane under one generation, as its topics were listed last.

    `source_cluster` and `target_cluster` are cluster ids. `claim_partitions` counts the partitions of the claims topic
    that this lane's generation shares. `batch_bytes_max` is the smallest and `record_bytes_max` the largest
    `max.message.bytes` of the lane's target topics: no batch may be larger than every target takes, and no record is
    refused here that some target takes. `compress`: the target has refused records for their size, and none of its
    properties says how they are to be compressed. `writes_map`: the flow has an offset map;
    `map_topic_id`: of its topic, if that was found fit before the lanes were started.
    """

    flow: Flow
    generation: int
    lane: int
    owner: str
    source_cluster: str
    routes: tuple[Route, ...]
    claim_partitions: int
    assignment: LaneAssignment
    batch_bytes_max: int = 1_000_000
    record_bytes_max: int = 1_048_588
    compress: bool = False
    target_cluster: str = ""
    writes_map: bool = False
    map_topic_id: str = ""

    @property
    def transactional_id(self) -> str:
        """The id on which fencing rests."""
        return names.lane_id(self.flow.name, self.generation, self.lane)

    @property
    def compressed_as_it_can_be(self) -> bool:
        """Whether a record that the target finds too large would be sent the same way again."""
        return self.compress or bool(self.flow.target.compression)

    @property
    def claim_partition(self) -> int:
        """The partition of the claims topic that this lane writes; shared where a generation has more lanes than
        that."""
        return self.lane % self.claim_partitions
