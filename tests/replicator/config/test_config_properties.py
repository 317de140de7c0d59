"""Client properties: secrets from outside, what is hidden, and what a flow file must not set."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.config import Cluster, FlowFileError, load, load_text
from replicator.config.properties import OWNED


def cluster_file(properties: str, more: str = "") -> str:
    """One cluster, properties from line 4 on."""
    return f"""\
clusters:
  a:
    properties:
      {{bootstrap.servers: "kafka:9092",
      {properties}}}
    {more}
  b: {{properties: {{bootstrap.servers: "b:1"}}}}
flows:
  f: {{source: a, target: b, topics: [x]}}
"""


def cluster(properties: str, env: dict[str, str] | None = None, more: str = "") -> Cluster:
    return load_text(cluster_file(properties, more), env=env or {}).clusters["a"]


def faults(properties: str, env: dict[str, str] | None = None, more: str = "") -> list[str]:
    with pytest.raises(FlowFileError) as caught:
        cluster(properties, env, more)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("key", sorted(OWNED))
def test_what_exactly_once_rests_on_is_refused_with_the_reason(key: str) -> None:
    assert faults(f"{key}: x") == [f"line 5: clusters.a.properties.{key}: belongs to the replicator: {OWNED[key]}"]


@pytest.mark.parametrize("key", ["isolation.level", "transactional.id", "acks", "group.id", "auto.offset.reset"])
def test_the_properties_of_the_invariants_are_among_them(key: str) -> None:
    assert key in OWNED


@pytest.mark.parametrize(
    ("written", "value"),
    [("0123", "0123"), ("yes", "yes"), ("1e3", "1e3"), ("true", "true"), ("2026-01-31", "2026-01-31"), ('""', "")],
)
def test_values_stay_as_written(written: str, value: str) -> None:
    assert cluster(f"client.id: {written}").properties["client.id"] == value


def test_a_value_is_needed() -> None:
    assert faults("client.id: ") == ["line 5: clusters.a.properties.client.id: expected text; it has no value"]
    assert faults("client.id: [a]") == ["line 5: clusters.a.properties.client.id: expected text, not a list"]


def test_environment_variables_are_put_in_and_hidden() -> None:
    found = cluster('sasl.password: "${PW}", client.rack: "r-${N}-$${N}"', {"PW": "s3cret", "N": "7"})
    assert found.properties["sasl.password"] == "s3cret"
    assert found.properties["client.rack"] == "r-7-${N}"
    for shown in (repr(found), str(found), str(found.model_dump()), found.model_dump_json(), f"{found.properties}"):
        assert "s3cret" not in shown
        assert "[hidden]" in shown
        assert "kafka:9092" in shown


def test_what_came_from_outside_is_hidden_whatever_its_name_is() -> None:
    found = cluster('client.rack: "${N}", sasl.username: "${U}"', {"N": "s3cret", "U": "replicator"})
    assert "s3cret" not in repr(found)
    assert "replicator" in repr(found)


def test_a_value_from_outside_is_not_read_again_for_variables() -> None:
    assert cluster('sasl.password: "${PW}"', {"PW": "a${N}"}).properties["sasl.password"] == "a${N}"


def test_a_missing_variable_is_named() -> None:
    assert faults('sasl.password: "${NOPE}"') == [
        "line 5: clusters.a.properties.sasl.password: environment variable 'NOPE' is not set"
    ]


def test_secret_files_are_found_beside_the_flow_file(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text("geheim ü\n", encoding="utf-8")
    (tmp_path / "flows.yaml").write_text(cluster_file("sasl.password: file:pw"))
    found = load(tmp_path / "flows.yaml", {}).clusters["a"]
    assert found.properties["sasl.password"] == "geheim ü"
    assert "geheim" not in repr(found)


def test_secret_files_that_cannot_be_read_do_not_show_their_content(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"s3cret\xff")
    text = cluster_file("sasl.password: file:binary, ssl.key.password: file:nope")
    (tmp_path / "flows.yaml").write_text(text)
    with pytest.raises(FlowFileError) as caught:
        load(tmp_path / "flows.yaml", {})
    assert "sasl.password: the file is not UTF-8 text" in str(caught.value)
    assert f"ssl.key.password: cannot read {tmp_path}/nope: No such file or directory" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_password_in_the_file_is_refused_off_loopback() -> None:
    (fault,) = faults("sasl.password: s3cret")
    assert fault.startswith("line 5: clusters.a.properties.sasl.password: a secret written in the file; use ${NAME}")
    assert "s3cret" not in fault
    assert cluster("sasl.password: x", more="allow_plaintext_password: true").properties["sasl.password"] == "x"


@pytest.mark.parametrize("address", ["localhost:1", "127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "PLAINTEXT://localhost:1"])
def test_on_loopback_it_is_not(address: str) -> None:
    text = cluster_file("sasl.password: x").replace("kafka:9092", address)
    assert load_text(text, env={}).clusters["a"].properties["sasl.password"] == "x"


@pytest.mark.parametrize("address", ["localhost:1,kafka:1", "localhost.evil.org:1", "10.0.0.1:1", "128.0.0.1", "::2"])
def test_one_address_elsewhere_is_enough(address: str) -> None:
    with pytest.raises(FlowFileError, match="a secret written in the file"):
        load_text(cluster_file("sasl.password: x").replace("kafka:9092", address), env={})


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
def test_a_password_without_tls_is_refused_off_loopback(mechanism: str) -> None:
    login = 'sasl.username: u, sasl.password: "${PW}"'
    properties = f"security.protocol: sasl_plaintext, sasl.mechanism: {mechanism}, {login}"
    (fault,) = faults(properties, {"PW": "x"})
    assert "without TLS sends the secret readably" in fault
    assert cluster(properties, {"PW": "x"}, "allow_plaintext_password: true")
    assert cluster(properties.replace("sasl_plaintext", "sasl_ssl"), {"PW": "x"})


def test_addresses_are_needed() -> None:
    text = cluster_file("client.id: x")
    with pytest.raises(FlowFileError, match=r"1 error\n.*bootstrap\.server: .* did you mean 'bootstrap\.servers'\?$"):
        load_text(text.replace('bootstrap.servers: "kafka', 'bootstrap.server: "kafka'), env={})
    with pytest.raises(FlowFileError, match=r"1 error\n.*clusters\.a\.properties: bootstrap\.servers is missing$"):
        load_text(text.replace('bootstrap.servers: "kafka:9092",', ""), env={})
    with pytest.raises(FlowFileError, match="names no address"):
        load_text(text.replace("kafka:9092", " , "), env={})


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            "socket.timout.ms: 5",
            "socket.timout.ms: librdkafka has no property of this name; did you mean 'socket.timeout.ms'?",
        ),
        ("xyzzy: 1", "xyzzy: librdkafka has no property of this name"),
        ("error_cb: x", "error_cb: librdkafka has no property of this name"),
        ("logger: x", "logger: librdkafka has no property of this name"),
        ("default.topic.config: x", "default.topic.config: librdkafka has no property of this name"),
        ("security.protocol: tls", "security.protocol: expected plaintext, ssl, sasl_plaintext or sasl_ssl"),
        (
            "security.protocol: SASL-SSL, sasl.mechanism: PLAIN, sasl.username: u, sasl.password: '${PW}'",
            "security.protocol: expected plaintext, ssl, sasl_plaintext or sasl_ssl; did you mean 'sasl_ssl'?",
        ),
        (
            "security.protocol: SASL_SSL, sasl.mechanism: SCRAM-SHA-521, sasl.username: u, sasl.password: '${PW}'",
            "sasl.mechanism: expected PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER; did you mean 'SCRAM-SHA-51",
        ),
        ("metadata.max.age.ms: soon", "metadata.max.age.ms: invalid value for configuration property"),
        ("socket.timeout.ms: 60s", "socket.timeout.ms: expected a whole number, written in digits"),
        ("fetch.min.bytes: -1", 'fetch.min.bytes: configuration property "fetch.min.bytes" value is outside allowed'),
        ("compression.type: zip", "compression.type: invalid value for configuration property"),
        ("security.protocol: ssl, ssl.ca.location: /nope", "ssl.ca.location: ssl.ca.location failed: "),
    ],
)
def test_properties_are_shown_to_the_client_library(properties: str, expected: str) -> None:
    (fault,) = faults(properties, {"PW": "x"})
    assert fault.startswith(f"line 5: clusters.a.properties.{expected}")


def test_properties_that_do_not_go_together() -> None:
    assert faults("security.protocol: sasl_ssl, sasl.mechanism: PLAIN") == [
        "line 3: clusters.a.properties: sasl.username and sasl.password must be set"
    ]


def test_faults_of_all_kinds_come_at_once() -> None:
    login = 'security.protocol: sasl_ssl, sasl.mechanism: PLAIN, sasl.username: u, sasl.password: "${NO}"'
    found = faults(f"{login}, xx: 1, yy: 2, acks: 1")
    assert [fault.split(": ")[1].removeprefix("clusters.a.properties.") for fault in found] == [
        "acks",
        "sasl.password",
        "xx",
        "yy",
    ]


def test_a_refused_value_from_outside_is_not_shown() -> None:
    (fault,) = faults('security.protocol: "${S}"', {"S": "s3cret"})
    assert "s3cret" not in fault


@pytest.mark.parametrize("properties", ["[a]", "5", "x", "", "{bootstrap.servers: {a: 1}}"])
def test_properties_of_another_shape(properties: str) -> None:
    text = f"clusters: {{a: {{properties: {properties}}}}}\nflows: {{f: {{source: a, target: a, topics: [x]}}}}"
    with pytest.raises(FlowFileError, match=r"clusters\.a\.properties.*: expected (keys with values|text)"):
        load_text(text, env={})
