"""Properties for librdkafka become properties for the Java client, or are refused; none that matters is dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.config import Cluster, Properties
from replicator.model.errors import ConfigError
from replicator.spark.reconcile import java_client


def translated(**given: str) -> dict[str, str]:
    dotted = {name.replace("_", "."): value for name, value in given.items()}
    return java_client.properties(Cluster(name="c", properties=Properties({"bootstrap.servers": "a:1", **dotted})))


def test_plain_clusters_keep_their_address_and_lose_tuning() -> None:
    assert translated(queued_min_messages="5", client_rack="r1") == {"bootstrap.servers": "a:1", "client.rack": "r1"}


def test_scram_becomes_a_jaas_line_with_its_quotes() -> None:
    found = translated(
        security_protocol="sasl_ssl", sasl_mechanisms="SCRAM-SHA-512", sasl_username="u", sasl_password='p"\\;x'
    )
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == "SCRAM-SHA-512"
    assert found["sasl.jaas.config"] == (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p\\"\\\\;x";'
    )


def test_kerberos_logs_in_with_the_keytab_or_with_tickets() -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    found = translated(
        security_protocol="SASL_SSL",
        sasl_kerberos_service_name="broker",
        sasl_kerberos_principal="me@HERE",
        sasl_kerberos_keytab="/etc/me.keytab",
    )
    assert (found["sasl.mechanism"], found["sasl.kerberos.service.name"]) == ("GSSAPI", "broker")
    assert found["sasl.jaas.config"] == (
        f'{module} required useKeyTab="true" storeKey="true" keyTab="/etc/me.keytab" principal="me@HERE";'
    )
    found = translated(security_protocol="SASL_PLAINTEXT")
    assert found["sasl.jaas.config"] == f'{module} required useTicketCache="true";'
    assert found["sasl.kerberos.service.name"] == "kafka"


def test_tokens_come_from_the_same_endpoint() -> None:
    found = translated(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_method="OIDC",
        sasl_oauthbearer_client_id="me",
        sasl_oauthbearer_client_secret="s",
        sasl_oauthbearer_scope="read",
        sasl_oauthbearer_extensions="logicalCluster=lkc-1,identityPoolId=pool-1",
        sasl_oauthbearer_token_endpoint_url="https://idp/token",
    )
    oauth = "org.apache.kafka.common.security.oauthbearer"
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://idp/token"
    assert found["sasl.login.callback.handler.class"] == f"{oauth}.OAuthBearerLoginCallbackHandler"
    assert found["sasl.jaas.config"] == (
        f'{oauth}.OAuthBearerLoginModule required clientId="me" clientSecret="s" scope="read" '
        'extension_logicalCluster="lkc-1" extension_identityPoolId="pool-1";'
    )


def test_unsigned_tokens_name_the_same_user() -> None:
    found = translated(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        enable_sasl_oauthbearer_unsecure_jwt="true",
        sasl_oauthbearer_config="principalClaimName=name principal=me lifeSeconds=60",
    )
    assert found["sasl.jaas.config"].endswith(
        'required unsecuredLoginStringClaim_name="me" unsecuredLoginLifetimeSeconds="60";'
    )


def test_certificates_are_handed_over_as_text(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("CA")
    (tmp_path / "key").write_text("KEY")
    found = translated(
        security_protocol="SSL",
        ssl_ca_location=str(tmp_path / "ca"),
        ssl_certificate_pem="CERT",
        ssl_key_location=str(tmp_path / "key"),
        ssl_key_password="s",
        ssl_endpoint_identification_algorithm="none",
    )
    assert found == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": "KEY",
        "ssl.key.password": "s",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"ssl_crl_location": "x"}, "ssl.crl.location"),
        ({"enable_ssl_certificate_verification": "false"}, "enable.ssl.certificate.verification: false"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "AWS"}, "sasl.mechanism AWS"),
        ({"security_protocol": "SASL_SSL", "sasl_kerberos_kinit_cmd": "kinit"}, "sasl.kerberos.kinit.cmd"),
        ({"security_protocol": "SASL_SSL", "sasl_kerberos_keytab": "/k"}, "needs sasl.kerberos.principal"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}, "needs sasl.oauthbearer.method oidc"),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "OAUTHBEARER",
                "sasl_oauthbearer_method": "oidc",
                "sasl_oauthbearer_grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
            },
            "sasl.oauthbearer.grant.type",
        ),
        ({"ssl_ca_location": "/nowhere/ca.pem"}, "ssl.ca.location: /nowhere/ca.pem cannot be read"),
    ],
)
def test_what_has_no_counterpart_is_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=f"clusters.c.properties.*{named}"):
        translated(**given)
