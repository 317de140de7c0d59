"""Which ACLs the target topics of a flow get, by those of its source topics. Pure.

Invariants
- Nobody gets a right on a topic that isn't a copy: what a prefix covers at the source becomes an ACL of its own for
  each of the flow's topics, since the same prefix may cover others at the target.
- Only reading is handed on. What the flow writes, nobody else shall: MirrorMaker 2 leaves out Write, and makes All a
  Read.
- Nobody may read a copy who may not read its source topic: denials are handed on, those of every topic too. Kafka asks
  for denials first.
- The flow doesn't lock itself out: Kafka takes positions only from who may read the topic (TxnOffsetCommit). A denial
  to its own user isn't handed on. One to everybody isn't either; what that takes from others, they aren't given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replicator.model.acls import TopicAcl

READING = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
ALL, EVERY_TOPIC, ANY_HOST, EVERYBODY = "ALL", "*", "*", "User:*"


def wanted_acls(source: Collection[TopicAcl], topics: Mapping[str, str], own: str = "") -> frozenset[TopicAcl]:
    """Return the ACLs that copies shall have.

    Who may read every topic (`*`) isn't told from who may do everything: those are left to the target's operator, as
    MirrorMaker 2 does.

    Args:
        source: all ACLs of topics at the source.
        topics: the target topic of each source topic.
        own: the principal as which the flow writes; empty where that isn't known.
    """
    copies = copied_acls(source, topics)
    denied = [acl for acl in copies if not acl.allowed and acl.principal == EVERYBODY]
    return frozenset(
        acl
        for acl in copies
        if not locks_out(acl, own) and not (acl.allowed and any(_takes(other, acl) for other in denied))
    )


def locks_out(acl: TopicAcl, own: str) -> bool:
    """Tell whether the ACL, on a target topic, would take a right from the flow itself."""
    return not acl.allowed and acl.principal in (EVERYBODY, own)


def lockouts(source: Collection[TopicAcl], topics: Mapping[str, str], own: str = "") -> list[str]:
    """Say which denials of the source aren't handed on, sorted: those that would keep the flow itself from a copy.
    Arguments as of `wanted_acls`."""
    return sorted(
        f"{acl.said()} on {acl.topic} would keep the flow itself from it"
        for acl in copied_acls(source, topics)
        if locks_out(acl, own)
    )


def _takes(denial: TopicAcl, allowed: TopicAcl) -> bool:
    """Tell whether a denial to everybody takes what this ACL allows. What is allowed from any host is taken whole: no
    ACL says 'from all hosts but these'."""
    same = (denial.topic, denial.operation) == (allowed.topic, allowed.operation)
    return same and (denial.host == ANY_HOST or allowed.host in (ANY_HOST, denial.host))


def copied_acls(source: Collection[TopicAcl], topics: Mapping[str, str]) -> frozenset[TopicAcl]:
    """Return what the source's ACLs say of the topics' copies."""
    found: set[TopicAcl] = set()
    for acl in source:
        operations = READING if acl.operation == ALL else READING & {acl.operation}
        for name in _covered(acl, topics) if operations else ():
            found |= {
                TopicAcl(topics[name], False, acl.principal, acl.host, operation, acl.allowed)
                for operation in operations
            }
    return frozenset(found)


def _covered(acl: TopicAcl, topics: Collection[str]) -> list[str]:
    if acl.prefixed:
        return [name for name in topics if name.startswith(acl.topic)]
    if acl.topic == EVERY_TOPIC:
        return [] if acl.allowed else list(topics)
    return [acl.topic] if acl.topic in topics else []
