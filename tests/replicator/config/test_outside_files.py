"""A cluster whose secret or certificate is another one is another cluster, and nothing of that is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from replicator.config import Config, load_text
from tests.embedded_broker.security.certificates import Authority

FILE = """\
clusters:
  a:
    properties:
      bootstrap.servers: "localhost:9092"
      security.protocol: SASL_SSL
      sasl.mechanism: SCRAM-SHA-256
      sasl.username: me
      sasl.password: file:secret
      ssl.ca.location: CA
flows:
  f: {source: a, target: a, topics: [x], rename: "{topic}.copy"}
"""


@pytest.fixture
def authorities(tmp_path: Path) -> tuple[Path, Path]:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        found.append(Authority(tmp_path / name).certificate)
    return found[0], found[1]


def read(directory: Path, ca: Path, secret: str = "s") -> Config:
    (directory / "secret").write_text(secret)
    return load_text(FILE.replace("CA", str(ca)), env={}, directory=directory)


def test_the_files_are_those_that_the_properties_name(tmp_path: Path, authorities: tuple[Path, Path]) -> None:
    config = read(tmp_path, authorities[0])
    assert config.files == (str(tmp_path / "secret"), str(authorities[0]))


def test_a_renewed_certificate_or_secret_changes_the_flow(tmp_path: Path, authorities: tuple[Path, Path]) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(authorities[0].read_bytes())
    before = read(tmp_path, ca).flows["f"]
    assert read(tmp_path, ca).flows["f"] == before
    assert read(tmp_path, ca, "other").flows["f"] != before
    ca.write_bytes(authorities[1].read_bytes())
    assert read(tmp_path, ca).flows["f"] != before


def test_no_digest_is_shown(tmp_path: Path, authorities: tuple[Path, Path]) -> None:
    cluster = read(tmp_path, authorities[0]).clusters["a"]
    digest = cluster.files[1][1]
    assert len(digest) == 64
    assert digest not in repr(cluster)
    assert digest not in cluster.model_dump_json()
