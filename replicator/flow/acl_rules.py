"""Which ACLs the target topics of a flow get, by those of its source topics. Pure.

Invariants
- Nobody gets a right on a topic that isn't a copy: what a prefix covers at the source becomes an ACL of its own for
  each of the flow's topics, since the same prefix may cover others at the target.
- Only reading is handed on. What the flow writes, nobody else shall: MirrorMaker 2 leaves out Write, and makes All a
  Read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from replicator.model.acls import TopicAcl

READING = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
ALL, EVERY_TOPIC = "ALL", "*"


def wanted_acls(source: Collection[TopicAcl], topics: Mapping[str, str]) -> frozenset[TopicAcl]:
    """Return the ACLs that copies shall have.

    Who may read every topic (`*`) isn't told from who may do everything: those are left to the target's operator, as
    MirrorMaker 2 does.

    Args:
        source: all ACLs of topics at the source.
        topics: the target topic of each source topic.
    """
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
    return [acl.topic] if acl.topic != EVERY_TOPIC and acl.topic in topics else []
