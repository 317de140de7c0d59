"""Finds all rights that are missing at once, for `inspect.planning`, without writing anything.

A cluster tells which operations a user may do on a topic or a group that the user may describe. Where it may not, the
operations that include Describe aren't granted either: Read, Write, Alter, Delete. DescribeConfigs and Create aren't
among them, and are asked for by themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing

from replicator.config import Cluster, Flow
from replicator.flow.topic_rules import ListedTopic
from replicator.inspect.flow_plan import PlanFinding
from replicator.kafka.admin import ClusterAdmin
from replicator.model import names
from replicator.model.errors import NotAllowed, ReplicatorError
from replicator.wire.producer_questions import ProducerQuestions

GROUP_RIGHTS = ("Describe", "Read")
TRANSACTION_RIGHTS = ("Describe", "Write")


def missing_on_topic(found: ListedTopic, needed: Iterable[str]) -> list[str]:
    """Return those of the `needed` operations on a topic that the user may not do, as far as the cluster tells."""
    if found.info is not None:
        rights = found.info.rights
        return [] if rights is None else [each for each in needed if each not in rights]
    if found.denied is None:
        return []
    without = [each for each in needed if each != "DescribeConfigs" or found.configs_denied]
    return list(dict.fromkeys(["Describe", *without]))


def missing_on_group(admin: ClusterAdmin, group: str) -> list[str]:
    """Return the operations on a group of the flow that the user may not do; none where the cluster doesn't tell."""
    try:
        rights = admin.group_rights(group)
    except NotAllowed:
        return list(GROUP_RIGHTS)
    return [each for each in GROUP_RIGHTS if rights is not None and each not in rights]


def lacks(cluster: Cluster, missing: Iterable[str], resource: str) -> str:
    """Return the sentence that names missing rights."""
    return f"cluster {cluster.name!r}: the user needs {', '.join(missing)} on {resource}"


def transaction_rights(flow: Flow) -> tuple[PlanFinding | None, str]:
    """Return what is missing on the flow's transactional ids, and what no request can tell that writes nothing.

    Whether the user may write in transactions isn't told by any: it is known to be missing where Describe is.
    """
    resource = f"transactional ids {names.transactional_prefix(flow.name)}*"
    try:
        with closing(ProducerQuestions(flow.target, f"eos-replicate.{flow.name}.plan")) as questions:
            described = questions.may_describe(names.control_id(flow.name))
    except ReplicatorError:
        return None, f"Describe and Write on {resource}"
    if described:
        return None, f"Write on {resource}"
    return PlanFinding("error", "right", lacks(flow.target, TRANSACTION_RIGHTS, resource), NotAllowed.exit_code), ""
