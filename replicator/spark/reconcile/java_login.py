"""How a cluster is logged in to: librdkafka's `sasl.*` properties as JAAS lines for Kafka's Java client.

The Java client's properties are those of `org.apache.kafka.common.config.SaslConfigs`. What is not understood is
refused, never dropped: a login with less than was asked for could be one as somebody else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from replicator.model.errors import ConfigError

Given = Mapping[str, str]
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_GSSAPI_SAME = ("sasl.kerberos.service.name", "sasl.kerberos.min.time.before.relogin")
_OIDC = {
    "sasl.oauthbearer.client.id": "clientId",
    "sasl.oauthbearer.client.secret": "clientSecret",
    "sasl.oauthbearer.scope": "scope",
}
_UNSECURED = {"lifeSeconds": "unsecuredLoginLifetimeSeconds", "scope": "unsecuredLoginListClaim_scope"}
UNDERSTOOD = frozenset(
    {
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"),
        *(*_GSSAPI_SAME, "sasl.kerberos.principal", "sasl.kerberos.keytab"),
        *(*_OIDC, "sasl.oauthbearer.method", "sasl.oauthbearer.grant.type", "sasl.oauthbearer.extensions"),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.config", "enable.sasl.oauthbearer.unsecure.jwt"),
    }
)
"""Properties of librdkafka that have a meaning here."""


def properties(cluster: str, given: Given) -> dict[str, str]:
    """Return the Java client's `sasl.*` properties for librdkafka's, secrets included.

    Args:
        cluster: its name in the flow file, for messages.

    Raises:
        ConfigError: the mechanism or what goes with it has no counterpart.
    """
    mechanism = given.get("sasl.mechanism", given.get("sasl.mechanisms", "GSSAPI")).upper()
    login = _LOGINS.get(mechanism)
    if login is None:
        raise _refused(cluster, f"sasl.mechanism {mechanism} with Spark; known are {', '.join(_LOGINS)}")
    return {"sasl.mechanism": mechanism, **login(cluster, given)}


def _password(module: str) -> Callable[[str, Given], dict[str, str]]:
    def login(cluster: str, given: Given) -> dict[str, str]:
        options = {"username": given.get("sasl.username", ""), "password": given.get("sasl.password", "")}
        return {"sasl.jaas.config": _jaas(module, options)}

    return login


def _kerberos(cluster: str, given: Given) -> dict[str, str]:
    """Return the properties of a login with the keytab, or with the tickets that whoever runs this has (`kinit`)."""
    keytab = given.get("sasl.kerberos.keytab", "")
    principal = {"principal": given["sasl.kerberos.principal"]} if "sasl.kerberos.principal" in given else {}
    if keytab and not principal:
        raise _refused(cluster, "sasl.kerberos.keytab with Spark needs sasl.kerberos.principal")
    how = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab} if keytab else {"useTicketCache": "true"}
    same = {name: given[name] for name in _GSSAPI_SAME if name in given}
    return {"sasl.kerberos.service.name": "kafka", **same, "sasl.jaas.config": _jaas(_KERBEROS, {**how, **principal})}


def _oauth(cluster: str, given: Given) -> dict[str, str]:
    method = given.get("sasl.oauthbearer.method", "default").lower()
    return _oidc(cluster, given) if method == "oidc" else _unsecured(cluster, given)


def _oidc(cluster: str, given: Given) -> dict[str, str]:
    """Return the properties of a login with client credentials at a token endpoint."""
    grant = given.get("sasl.oauthbearer.grant.type", "client_credentials").lower()
    if grant != "client_credentials":
        raise _refused(cluster, f"sasl.oauthbearer.grant.type {grant} with Spark; known is client_credentials")
    url = given.get("sasl.oauthbearer.token.endpoint.url", "")
    if not url:
        raise _refused(cluster, "sasl.oauthbearer.method oidc needs sasl.oauthbearer.token.endpoint.url")
    options = {theirs: given[name] for name, theirs in _OIDC.items() if name in given}
    for pair in filter(None, given.get("sasl.oauthbearer.extensions", "").split(",")):
        name, _, value = pair.partition("=")
        options[f"extension_{name.strip()}"] = value.strip()
    return {
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": _jaas(f"{_OAUTH}.OAuthBearerLoginModule", options),
    }


def _unsecured(cluster: str, given: Given) -> dict[str, str]:
    """Return the properties of a login with tokens that nobody signs, for tests: `sasl.oauthbearer.config` as
    librdkafka has it.
    """
    if given.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() not in ("true", "1"):
        raise _refused(cluster, "OAUTHBEARER with Spark needs sasl.oauthbearer.method oidc")
    said = dict(item.partition("=")[::2] for item in given.get("sasl.oauthbearer.config", "").split())
    claim = said.pop("principalClaimName", "sub")
    options = {f"unsecuredLoginStringClaim_{claim}": said.pop("principal", "")}
    for name, value in said.items():
        if name not in _UNSECURED and not name.startswith("extension_"):
            raise _refused(cluster, f"{name} in sasl.oauthbearer.config has no counterpart with Spark")
        options[_UNSECURED.get(name, f"unsecuredLoginExtension_{name.removeprefix('extension_')}")] = value
    return {"sasl.jaas.config": _jaas(f"{_OAUTH}.OAuthBearerLoginModule", options)}


_LOGINS: Mapping[str, Callable[[str, Given], dict[str, str]]] = {
    "PLAIN": _password(_PLAIN),
    "SCRAM-SHA-256": _password(_SCRAM),
    "SCRAM-SHA-512": _password(_SCRAM),
    "GSSAPI": _kerberos,
    "OAUTHBEARER": _oauth,
}


def _refused(cluster: str, why: str) -> ConfigError:
    return ConfigError(f"clusters.{cluster}.properties: {why}")


def _jaas(module: str, options: Mapping[str, str]) -> str:
    """Write a line in JAAS syntax."""
    parts = (f"{name}={_quoted(value)}" for name, value in options.items())
    return f"{' '.join([module, 'required', *parts])};"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
