"""Names that a flow uses on its clusters. They are part of the format: changing one orphans a flow.

Invariant: a transactional id is flow.generation.lane and nothing else, so that a successor fences
its predecessor, on whatever host and in whatever process or attempt. Fencing rests on this id alone.
"""

from __future__ import annotations

import os
import re
import socket
import uuid

INTERNAL_PREFIX = "__"
STATE_PREFIX = "__eos."
"""Of the topics in which flows keep their state."""


def state_prefix(flow: str) -> str:
    """Return what the names of one flow's own topics begin with."""
    return f"{STATE_PREFIX}{flow}."


def transactional_prefix(flow: str) -> str:
    """Return what its transactional ids begin with."""
    return f"eos.{flow}."


def control_topic(flow: str) -> str:
    """Name the compacted topic with one partition that has the generations of the flow, written only under
    `control_id`.
    """
    return f"{state_prefix(flow)}control"


def claims_topic(flow: str) -> str:
    """Name the compacted topic with one partition per lane that has the claims and repairs of the flow's partitions."""
    return f"{state_prefix(flow)}claims"


def offsets_topic(flow: str) -> str:
    """Name the topic with the offset map's blocks, see `offset_map.topic`."""
    return f"__eos.{flow}.offsets"


def offsets_index_topic(flow: str) -> str:
    """Name the topic with the offset map's index, see `offset_map.directory`."""
    return f"__eos.{flow}.offsets-index"


def aside_topic(flow: str) -> str:
    """Name the topic with one partition, made when it is first needed, that has the source records that operators have
    set aside.
    """
    return f"__eos.{flow}.aside"


HEARTBEATS_PREFIX = "eos-heartbeat."
"""Of topics with heartbeat records: each is copied by its own flow, and by no other."""


def heartbeats_topic(flow: str) -> str:
    """Name the topic at the source with one partition, to which the flow writes heartbeat records."""
    return f"{HEARTBEATS_PREFIX}{flow}"


def heartbeats_copy(flow: str) -> str:
    """Name its copy at the target, whatever the flow's topics are renamed to: both clusters may be one."""
    return f"{heartbeats_topic(flow)}.copy"


def flow_of_claims(topic: str) -> str | None:
    """Return the flow whose claims topic this is; None for any other topic."""
    prefix, suffix = claims_topic("|").split("|")
    if not topic.startswith(prefix) or not topic.endswith(suffix) or len(topic) <= len(prefix) + len(suffix):
        return None
    return topic.removeprefix(prefix).removesuffix(suffix)


OWN_GROUPS_PREFIX = "eos-replicate."
"""Of groups in which flows keep positions, or have their workers."""


def position_group(flow: str) -> str:
    """Name the group without members whose committed offsets are the flow's source positions (KIP-656)."""
    return f"{OWN_GROUPS_PREFIX}{flow}"


def workers_group(flow: str) -> str:
    """Name the group whose members are the flow's workers; no position stands in it."""
    return f"{position_group(flow)}.workers"


def lanes_topic(flow: str, lanes: int) -> str:
    """Name the topic that the workers' group shares out: empty, one partition per lane. Another number of lanes has a
    topic of its own, because partitions never become fewer."""
    return f"{state_prefix(flow)}lanes.{lanes}"


def lane_id(flow: str, generation: int, lane: int) -> str:
    """Return the transactional id of a lane."""
    return f"{transactional_prefix(flow)}{generation}.{lane}"


def control_id(flow: str) -> str:
    """Return the transactional id under which the control topic is written."""
    return f"{transactional_prefix(flow)}control"


def map_index_id(flow: str) -> str:
    """Return the transactional id under which the offset map's index is written."""
    return f"{transactional_prefix(flow)}offsets-index"


_OWN_ID = re.compile(r"eos\.[A-Za-z0-9_-]+\.(\d+\.\d+|control|offsets-index|groups)")


def is_own_transactional_id(transactional_id: str) -> bool:
    """Return whether it is one under which some flow writes: `lane_id`, `control_id`, `map_index_id`, `groups_id`."""
    return _OWN_ID.fullmatch(transactional_id) is not None


def groups_topic(flow: str) -> str:
    """Name the compacted topic with one partition that has what the flow has committed for consumer groups, see
    `state.group_notes`.
    """
    return f"{state_prefix(flow)}groups"


def groups_id(flow: str) -> str:
    """Return the transactional id under which the groups topic is written."""
    return f"{transactional_prefix(flow)}groups"


def cutovers_topic(flow: str) -> str:
    """Name the compacted topic with one partition, made at the first failover, that has the verdicts' rows, see
    `failover.kept_rows`.
    """
    return f"{state_prefix(flow)}cutovers"


def ends_group(flow: str) -> str:
    """Name the group without members whose offsets say where the source's partitions ended when they were last seen."""
    return f"{position_group(flow)}.ends"


def process_name() -> str:
    """Make a name for a process, or one attempt in it, that no other has had: the owner in positions."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
