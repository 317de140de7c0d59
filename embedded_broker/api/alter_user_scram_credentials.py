"""AlterUserScramCredentials (51).

Behaviour: each user's credential is stored or removed durably before the response. Clients send salted passwords; the
broker stores only the keys that RFC 5802 requires of a server. Checks as in ScramControlManager: a user may be altered
once in a request, and iterations are bounded. This broker also bounds names (4,096 bytes), salts and salted passwords
(1,024 bytes), which it refuses with UNACCEPTABLE_CREDENTIAL, and the memory of all metadata (POLICY_VIOLATION).
Version notes: there is v0 only.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kio.schema.errors import ErrorCode

from embedded_broker.api.disk_full import refusal
from embedded_broker.api.ports import Client, Parts
from embedded_broker.api.registry import api
from embedded_broker.metadata.metadata_size import NAME_BYTES_MAX, is_long
from embedded_broker.security.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SALT_BYTES_MAX,
    TYPES,
    Credentials,
    of_salted_password,
)
from embedded_broker.storage.disk_space import NoSpace
from embedded_broker.wire.responses import Answer

USER_STEPS = 20


class ScramChangeRejected(Exception):
    """A change that isn't made."""

    def __init__(self, error_code: ErrorCode, detail: str) -> None:
        super().__init__(detail)
        self.error_code = error_code


@api(51, "alter_user_scram_credentials", range(1), changes=True)
async def handle(broker: Parts, conn: Client, request: Any, version: int) -> Answer:
    """Handle AlterUserScramCredentials: see the behaviour and version notes above."""
    credentials = broker.security.credentials
    times = Counter(each.name for each in (*request.deletions, *request.upsertions))
    results: dict[str, dict[str, Any]] = {}
    share = conn.share()
    for wanted in (*request.deletions, *request.upsertions):
        await share.spent(USER_STEPS)
        try:
            if times[wanted.name] > 1:
                message = "A user credential cannot be altered twice in the same request"
                raise ScramChangeRejected(ErrorCode.duplicate_resource, message)
            await _change(credentials, wanted)
            results[wanted.name] = {"user": wanted.name, "error_message": None}
        except ScramChangeRejected as refused:
            results[wanted.name] = {
                "user": wanted.name,
                "error_code": refused.error_code,
                "error_message": str(refused),
            }
        except NoSpace as error:
            results[wanted.name] = {"user": wanted.name, **refusal(error)}
    return {"results": list(results.values())}


async def _change(credentials: Credentials, wanted: Any) -> None:
    """Change or delete a credential. Raises ScramChangeRejected, NoSpace, or another OSError."""
    if not wanted.name:
        raise ScramChangeRejected(ErrorCode.unacceptable_credential, "Username must not be empty")
    mechanism = TYPES.get(wanted.mechanism)
    if mechanism is None:
        raise ScramChangeRejected(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    if not hasattr(wanted, "salted_password"):
        if not await credentials.delete(mechanism, wanted.name):
            message = "Attempt to delete a user credential that does not exist"
            raise ScramChangeRejected(ErrorCode.resource_not_found, message)
        return
    if not ITERATIONS_MIN <= wanted.iterations <= ITERATIONS_MAX:
        many = "few" if wanted.iterations < ITERATIONS_MIN else "many"
        raise ScramChangeRejected(ErrorCode.unacceptable_credential, f"Too {many} iterations")
    if is_long(wanted.name):
        raise ScramChangeRejected(ErrorCode.unacceptable_credential, f"Username of more than {NAME_BYTES_MAX} bytes")
    for what, value in (("Salt", wanted.salt), ("Salted password", wanted.salted_password)):
        if len(value) > SALT_BYTES_MAX:
            raise ScramChangeRejected(ErrorCode.unacceptable_credential, f"{what} of more than {SALT_BYTES_MAX} bytes")
    made = of_salted_password(mechanism, wanted.salted_password, wanted.salt, wanted.iterations)
    await credentials.put(mechanism, wanted.name, made)
