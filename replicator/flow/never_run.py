"""Tells a flow that has never run from one of which all own topics are gone. Called by commands that change a flow; the
source is asked for nothing.

Without both topics no claim says which partitions there are, so the flow's group is asked for all that it has: a
position outlives the topics, as long as the target topic is there.
"""

from __future__ import annotations

from contextlib import closing

from replicator.config import Flow
from replicator.model import names
from replicator.model.counting import counted
from replicator.model.errors import Incident, ReplicatorError
from replicator.wire.group_questions import GroupQuestions

ASK_S = 5.0


def check_new(flow: Flow) -> None:
    """Raise Incident `claims_topic_lost` where a flow without own topics has positions at the target; Unreachable,
    NotAllowed, Retriable where that isn't known."""
    group = names.position_group(flow.name)
    with closing(GroupQuestions(flow.target, f"eos-replicate.{flow.name}.new")) as questions:
        found = questions.offsets({group: None}, ASK_S, stable=False)[group]
    if isinstance(found, ReplicatorError):
        raise found
    if committed := sum(it is not None for of_topic in found.topics().values() for it in of_topic.values()):
        claims = names.claims_topic(flow.name)
        why = f"neither {names.control_topic(flow.name)} nor {claims} exists, but the group {group} has "
        raise Incident("claims_topic_lost", why + counted(committed, "position"), topic=claims)
