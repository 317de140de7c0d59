"""ACLs that a broker acts by.

The controller answers CreateAcls and DeleteAcls before its brokers have the change. A broker answers DescribeAcls out
of the authorizer that it asks itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka.admin import AclBinding, AclBindingFilter, AdminClient

from integration_tests.harness.processes import wait_until

ANSWER_S_MAX = 60.0


def create(admin: AdminClient, *bindings: AclBinding) -> None:
    """Create ACLs, and return once the broker acts by them."""
    for future in admin.create_acls(list(bindings)).values():
        future.result(ANSWER_S_MAX)
    exactly = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in bindings
    ]
    wait_until(lambda: all(_described(admin, each) for each in exactly), "the ACLs are there", lambda: f"{bindings}")


def delete(admin: AdminClient, wanted: AclBindingFilter) -> Sequence[AclBinding]:
    """Delete the ACLs that a filter matches, and return them once the broker acts by none of them."""
    deleted = admin.delete_acls([wanted])[wanted].result(ANSWER_S_MAX)
    wait_until(lambda: not _described(admin, wanted), "the ACLs are gone", lambda: f"{wanted}")
    return list(deleted)


def _described(admin: AdminClient, wanted: AclBindingFilter) -> Sequence[AclBinding]:
    return list(admin.describe_acls(wanted).result(ANSWER_S_MAX))
