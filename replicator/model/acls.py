"""ACLs of topics, as Kafka keeps them. Pure values; read and created by `kafka.admin`, chosen by `flow.acl_rules`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class TopicAcl:
    """One ACL.

    Attributes:
        topic: the topic's name, or if it is `prefixed` what names begin with; `*` is every topic.
        principal, host: who, and from where; `*` is any host.
        operation: named as in org.apache.kafka.common.acl.AclOperation.
        allowed: or denied.
    """

    topic: str
    prefixed: bool
    principal: str
    host: str
    operation: str
    allowed: bool

    def said(self) -> str:
        """Say it in words, without the topic."""
        return f"{'allow' if self.allowed else 'deny'} {self.operation} to {self.principal} from {self.host}"
