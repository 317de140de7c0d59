"""ACLs of topics as the admin client of librdkafka has them, and as the replicator does. Pure."""

from __future__ import annotations

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from replicator.model.acls import TopicAcl


def acl_of(binding: AclBinding) -> TopicAcl:
    """Return what the client has listed."""
    return TopicAcl(
        binding.name,
        binding.resource_pattern_type is ResourcePatternType.PREFIXED,
        binding.principal,
        binding.host,
        AclOperation(binding.operation).name,
        binding.permission_type is AclPermissionType.ALLOW,
    )


def binding_of(acl: TopicAcl) -> AclBinding:
    """Return what the client creates."""
    return AclBinding(
        ResourceType.TOPIC,
        acl.topic,
        ResourcePatternType.PREFIXED if acl.prefixed else ResourcePatternType.LITERAL,
        acl.principal,
        acl.host,
        AclOperation[acl.operation],
        AclPermissionType.ALLOW if acl.allowed else AclPermissionType.DENY,
    )
