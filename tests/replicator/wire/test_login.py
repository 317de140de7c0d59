"""TLS and logins from librdkafka's properties: with whom a connection talks, and what it refuses."""

from __future__ import annotations

import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from scramp import ScramException, ScramMechanism

from replicator.config import Cluster, Properties
from replicator.model.errors import ConfigError, Unreachable, Unsupported
from replicator.model.partition import Partition
from replicator.wire import log_evidence, sasl
from replicator.wire.access import Access, access
from replicator.wire.connection import Connection, ConnectionLost
from tests.embedded_broker.security.certificates import Authority
from tests.replicator.wire.fake_broker import TOPIC, Answer, FakeBroker, Leader, flow_of
from tests.replicator.wire.logs import batch

USER, PASSWORD = "al,ice=1", "s3cret ü"


def accessed(**given: str) -> Access:
    dotted = {name.replace("_", "."): value for name, value in given.items()}
    return access(Cluster(name="east", properties=Properties({"bootstrap.servers": "a:1", **dotted})))


def scram(**given: str) -> Access:
    login = {"sasl_mechanism": "scram-sha-256", "sasl_username": "u", "sasl_password": "hidden", **given}
    return accessed(security_protocol="sasl_ssl", **login)


def test_plain_text_without_a_login_is_the_default() -> None:
    assert accessed(ssl_ca_location="/nowhere", sasl_username="u", queued_min_messages="5").tls is None
    assert accessed().mechanism == ""


def test_tls_checks_certificate_and_name_unless_told_otherwise() -> None:
    for given, mode, name in (
        ({}, ssl.CERT_REQUIRED, True),
        ({"enable_ssl_certificate_verification": "true"}, ssl.CERT_REQUIRED, True),
        ({"ssl_endpoint_identification_algorithm": "https"}, ssl.CERT_REQUIRED, True),
        ({"ssl_endpoint_identification_algorithm": "none"}, ssl.CERT_REQUIRED, False),
        ({"enable_ssl_certificate_verification": "false"}, ssl.CERT_NONE, False),
    ):
        made = accessed(security_protocol="SSL", **given).tls
        assert made is not None
        assert (made.verify_mode, made.check_hostname) == (mode, name)


def test_a_password_is_not_printed() -> None:
    found = scram()
    assert (found.mechanism, found.username, found.password) == ("SCRAM-SHA-256", "u", "hidden")
    assert "hidden" not in repr(found)


@pytest.mark.parametrize(
    "given",
    [
        {"sasl_mechanism": "GSSAPI"},
        {"sasl_mechanism": "OAUTHBEARER"},
        {
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_method": "oidc",
            "sasl_oauthbearer_grant_type": "jwt-bearer",
        },
        {"ssl_keystore_location": "/k.p12"},
        {"ssl_crl_location": "/crl"},
        {"ssl_engine_location": "/e"},
    ],
)
def test_what_cannot_be_done_here_is_unsupported(given: Mapping[str, str]) -> None:
    with pytest.raises(Unsupported, match="cluster 'east': its logs can't be read batch by batch with "):
        scram(**given)


def test_the_default_login_is_kerberos_which_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="GSSAPI"):
        accessed(security_protocol="sasl_plaintext")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"security_protocol": "tls"}, "security.protocol: tls is none"),
        ({"sasl_mechanism": "PLAIN", "security_protocol": "SASL_PLAINTEXT"}, "PLAIN needs sasl.username"),
        ({"security_protocol": "ssl", "ssl_ca_location": "/nowhere.pem"}, "ssl.ca.location: it can't be used"),
        ({"security_protocol": "ssl", "ssl_ca_pem": "no pem"}, "ssl.ca.pem: it can't be used"),
        ({"security_protocol": "ssl", "ssl_cipher_suites": "none such"}, "ssl.cipher.suites: it can't be used"),
        ({"security_protocol": "ssl", "ssl_key_pem": "x"}, "ssl.certificate.location or ssl.certificate.pem is"),
        ({"security_protocol": "ssl", "ssl_certificate_pem": "x"}, "ssl.key.location or ssl.key.pem is"),
        ({"security_protocol": "ssl", "ssl_certificate_pem": "x", "ssl_key_pem": "ü"}, "ssl.certificate: it can't"),
    ],
)
def test_properties_that_cannot_be_are_refused(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=f"clusters.east.properties.*{said}"):
        accessed(**given)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def serving(authority: Authority, *, client_certificates: bool = False) -> ssl.SSLContext:
    pair = authority.sign("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if client_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    return context


def ask(tls: ssl.SSLContext | None, leader: Leader | None = None, host: str = "127.0.0.1", **given: Any) -> int:
    """Finds the holes of a log of ten records over a connection with these properties; how many there are."""
    leading = leader or Leader()
    leading.records = batch(0, 9)
    with FakeBroker(leading, tls, host) as broker:
        leading.broker = broker
        leading.host = host
        servers = f"{host}:{broker.port}"
        flow = flow_of(broker, 3_000, 3_000, bootstrap_servers=servers, **given)
        (found,) = log_evidence.holes(flow, flow.source, Partition(TOPIC, 0), [(0, 10)])
        return len(found.holes)


def test_tls_with_the_authority_as_file_or_text(authority: Authority) -> None:
    tls = serving(authority)
    assert ask(tls, security_protocol="ssl", ssl_ca_location=str(authority.certificate)) == 0
    assert ask(tls, security_protocol="ssl", ssl_ca_pem=authority.certificate.read_text()) == 0


def test_a_broker_whose_certificate_is_not_trusted_is_refused(authority: Authority, tmp_path: Path) -> None:
    other = Authority(tmp_path, "other")
    with pytest.raises(Unreachable, match="certificate verify failed") as caught:
        ask(serving(authority), security_protocol="ssl", ssl_ca_location=str(other.certificate))
    assert type(caught.value) is Unreachable  # not one that is tried again
    assert ask(serving(authority), security_protocol="ssl", enable_ssl_certificate_verification="false") == 0


def test_without_an_authority_those_of_the_system_hold(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    assert ask(serving(authority), security_protocol="ssl") == 0
    assert ask(serving(authority), security_protocol="ssl", ssl_ca_location="probe") == 0


def test_a_broker_under_another_name_is_refused(authority: Authority) -> None:
    given: dict[str, Any] = {"security_protocol": "ssl", "ssl_ca_location": str(authority.certificate)}
    with pytest.raises(Unreachable, match="IP address mismatch"):
        ask(serving(authority), host="127.0.0.2", **given)
    assert ask(serving(authority), host="127.0.0.2", ssl_endpoint_identification_algorithm="none", **given) == 0


@pytest.mark.parametrize("form", ["location", "pem"])
@pytest.mark.parametrize("password", ["", "key-password"])
def test_the_client_shows_its_certificate(authority: Authority, form: str, password: str) -> None:
    pair = authority.sign("client")
    if password:
        key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
        how = serialization.BestAvailableEncryption(password.encode())
        pem = serialization.Encoding.PEM
        pair.key.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, how))
    given: dict[str, Any] = {"security_protocol": "ssl", "ssl_ca_location": str(authority.certificate)}
    for name, path in (("certificate", pair.certificate), ("key", pair.key)):
        given[f"ssl_{name}_{form}"] = str(path) if form == "location" else path.read_text()
    tls = serving(authority, client_certificates=True)
    if password:
        with pytest.raises(ConfigError, match=r"ssl\.certificate: it can't be used"):
            ask(tls, **given)
        given["ssl_key_password"] = password
    assert ask(tls, **given) == 0


def test_without_its_certificate_it_is_refused(authority: Authority) -> None:
    given: dict[str, Any] = {"security_protocol": "ssl", "ssl_ca_location": str(authority.certificate)}
    with pytest.raises(Unreachable, match="certificate required") as caught:
        ask(serving(authority, client_certificates=True), **given)
    assert type(caught.value) is Unreachable


@pytest.mark.tier("default")  # waits
def test_tls_where_plain_text_is_spoken_ends_in_time() -> None:
    began_s = time.monotonic()
    with pytest.raises(Unreachable):
        ask(None, security_protocol="ssl")
    assert time.monotonic() - began_s < 20


class Login(Leader):
    """A leader that wants a login first."""

    def __init__(self, mechanism: str = "PLAIN", **lies: Any) -> None:
        super().__init__()
        self.mechanism, self.lies = mechanism, lies
        self.logged_in = False
        self.said: list[bytes] = []
        self._server: Any = None
        if mechanism != "PLAIN":
            scramp = ScramMechanism(mechanism)
            salt, stored, server, count = scramp.make_auth_info(lies.get("password", PASSWORD), iteration_count=4096)
            self._server = scramp.make_server(lambda user: (salt, stored, server, count))

    def __call__(self, api: str, version: int, request: Any) -> Answer:
        if not self.logged_in and api not in ("api_versions", "sasl_handshake", "sasl_authenticate"):
            return None
        return super().__call__(api, version, request)

    def answer_sasl_handshake(self, request: Any) -> Answer:
        known = request.mechanism == self.mechanism
        return {"error_code": 0 if known else 33, "mechanisms": (self.mechanism,)}

    def answer_sasl_authenticate(self, request: Any) -> Answer:
        self.said.append(request.auth_bytes)
        if self._server is None:
            self.logged_in = request.auth_bytes == f"\0{USER}\0{PASSWORD}".encode()
            refused = {"error_code": 58, "error_message": "Authentication failed: Invalid username or password"}
            return {"auth_bytes": b"", "session_lifetime": 0} if self.logged_in else refused
        if len(self.said) == 1:
            self._server.set_client_first(request.auth_bytes.decode())
            text = self.lies.get("first", lambda text: text)(self._server.get_server_first())
        else:
            try:
                self._server.set_client_final(request.auth_bytes.decode())
            except ScramException:
                return {"error_code": 58, "error_message": "Authentication failed during authentication due to ..."}
            text = self.lies.get("final", lambda text: text)(self._server.get_server_final())
            self.logged_in = True
        return {"auth_bytes": text.encode(), "session_lifetime": self.lies.get("lifetime", 0)}


def log_in(leader: Login, mechanism: str = "", password: str = PASSWORD) -> int:
    how = {"sasl_mechanism": mechanism or leader.mechanism, "sasl_username": USER, "sasl_password": password}
    return ask(None, leader, security_protocol="sasl_plaintext", **how)


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
def test_a_login_with_each_mechanism(mechanism: str) -> None:
    leader = Login(mechanism)
    assert log_in(leader) == 0
    assert leader.logged_in
    assert mechanism == "PLAIN" or all(PASSWORD.encode() not in said for said in leader.said)


@pytest.mark.parametrize("mechanism", sasl.MECHANISMS)
def test_a_wrong_password_is_refused_at_once(mechanism: str) -> None:
    leader = Login(mechanism)
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="cluster 'east' refused the credentials: Authentication failed"):
        log_in(leader, password="wrong")
    assert time.monotonic() - began_s < 4
    assert not leader.logged_in


def test_a_mechanism_that_the_broker_does_not_take_is_named() -> None:
    with pytest.raises(Unreachable, match="PLAIN isn't among the mechanisms of this listener: SCRAM-SHA-512"):
        log_in(Login("SCRAM-SHA-512"), "PLAIN")


def test_a_listener_without_logins_is_named() -> None:
    leader = Login()
    leader.instead["sasl_handshake"] = [{"error_code": 34, "mechanisms": ()}]
    with pytest.raises(Unreachable, match="SASL"):
        log_in(leader)


@pytest.mark.parametrize("iterations", ["99999999", "4095", "65537", ""])
def test_a_broker_that_asks_for_too_much_or_too_little_work_is_refused(iterations: str) -> None:
    leader = Login("SCRAM-SHA-256", first=lambda text: text.replace("i=4096", f"i={iterations}"))
    with pytest.raises(Unreachable, match="doesn't ask for 4096 to 65536 iterations"):
        log_in(leader)


@pytest.mark.parametrize(
    "lies",
    [
        {"first": lambda text: text.replace("r=", "r=other")},
        {"first": lambda text: "no such thing"},
        {"final": lambda text: "v=" + "A" * 43 + "="},
        {"final": lambda text: "e=other-error"},
        {"final": lambda text: ""},
    ],
)
def test_a_broker_that_does_not_know_the_password_either_is_refused(lies: Mapping[str, Any]) -> None:
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="cannot log in with SCRAM-SHA-256"):
        log_in(Login("SCRAM-SHA-256", **lies))
    assert time.monotonic() - began_s < 4


def test_a_login_that_has_expired_is_made_again() -> None:
    """Kafka closes connections whose session is over (KIP-368)."""
    leader = Login("PLAIN")
    leader.instead["sasl_authenticate"] = []
    original = leader.answer_sasl_authenticate

    def short(request: Any) -> Answer:
        answer = original(request)
        assert isinstance(answer, dict)
        return {**answer, "session_lifetime": 1}

    leader.answer_sasl_authenticate = short  # type: ignore[method-assign]
    slow = leader.answer_list_offsets

    def slowly(request: Any) -> Answer:
        time.sleep(0.005)
        return slow(request)

    leader.answer_list_offsets = slowly  # type: ignore[method-assign]
    assert log_in(leader) == 0
    assert len(leader.said) >= 3


@pytest.mark.parametrize("host", [".27.0.0.1", "a..b", f"{'x' * 64}.example"], ids=["first", "empty", "long"])
def test_a_broker_that_is_called_what_no_host_is_called_is_not_reached(host: str) -> None:
    """Metadata may say anything."""
    with pytest.raises(ConnectionLost, match="is no host name"):
        Connection(
            (host, 9), access(flow_of(9).source), "me", deadline_s=time.monotonic() + 5, response_bytes_max=1_000
        )
