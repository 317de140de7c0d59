"""A flow whose tokens a command prints, which expire after seconds: with both engines, and while the command fails."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.harness.broker import BrokerHandle, Kind
from integration_tests.harness.copying import Copying
from integration_tests.harness.guarded import ON_TARGET_TOPIC
from integration_tests.harness.replicator import Event
from integration_tests.harness.secured import Secured, secured_broker

USER, LIFE_S = "tina", 6
PROGRAM = """
import base64, json, pathlib, sys, time
here = pathlib.Path(__file__).parent
with open(here / "runs", "a") as runs:
    runs.write("x")
mode = (here / "mode").read_text()
if mode == "fails":
    sys.exit("no ticket in the cache")
if mode == "hangs":
    time.sleep(600)
def part(fields):
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
if mode == "signed":  # the broker has no key for it
    print(part({"alg": "RS256"}) + "." + part({"sub": "tina", "exp": time.time() + LIFE}) + ".c2ln")
elif mode == "works":
    print(part({"alg": "none"}) + "." + part({"sub": "tina", "exp": time.time() + LIFE}) + ".")
"""
WHY = {
    "fails": "it ended with exit code 1: no ticket in the cache",
    "hangs": "it didn't end within 1 s, and was killed",
    "silent": "it printed nothing",
    "signed": "invalid_token",
}


@pytest.fixture(scope="module")
def guarded(kind: Kind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that ends sessions whose token has expired (KIP-368)."""
    with secured_broker(kind, tmp_path_factory.mktemp("tokens")) as broker:
        yield broker


class Tokens:
    """The command, in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._script = directory / "token.py"
        self._script.write_text(PROGRAM.replace("LIFE", str(LIFE_S)))
        self.go("works")

    def go(self, mode: str) -> None:
        (self._directory / "mode").write_text(mode)

    @property
    def command(self) -> list[str]:
        return [sys.executable, str(self._script)]

    @property
    def runs(self) -> int:
        return len((self._directory / "runs").read_text())


@pytest.fixture(params=["records", "batches"])
def engine(request: pytest.FixtureRequest) -> str:
    """By which the flow copies."""
    return str(request.param)


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """One that works."""
    return Tokens(tmp_path)


@pytest.fixture
def copying(source: BrokerHandle, guarded: Secured, tokens: Tokens, tmp_path: Path, engine: str) -> Iterator[Copying]:
    """A flow that logs in at its target with tokens of the command, and nothing else."""
    login = {
        "bootstrap.servers": guarded.addresses.sasl,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    copying = Copying(source, guarded, tmp_path, via=login, partitions=2, engine=engine)
    copying.file.of_target(token_command=tokens.command, token_timeout_ms=1_000)
    guarded.allow(USER, "GROUP", copying.group, "DESCRIBE", "READ")
    guarded.allow(USER, "TOPIC", copying.copy, *ON_TARGET_TOPIC)
    guarded.allow(USER, "TOPIC", f"__eos.{copying.name}", *ON_TARGET_TOPIC, prefix=True)
    guarded.allow(USER, "TRANSACTIONAL_ID", f"eos.{copying.name}", "DESCRIBE", "WRITE", prefix=True)
    guarded.allow(USER, "BROKER", "kafka-cluster", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")
    yield copying
    copying.close()


@pytest.mark.tier("long")
def test_a_flow_goes_on_when_its_tokens_expire(copying: Copying, tokens: Tokens) -> None:
    worker = copying.running()
    with copying.writing(20):
        assert worker.runs_on(4 * LIFE_S)
    copying.finish(worker)
    assert worker.seen("incident") == []
    copying.assert_exact()
    assert 4 <= tokens.runs <= 12


@pytest.mark.tier("long")
@pytest.mark.parametrize("mode", WHY)
def test_a_flow_waits_while_there_is_no_token_says_why_and_goes_on(copying: Copying, tokens: Tokens, mode: str) -> None:
    def told(event: Event) -> bool:
        return WHY[mode] in str(event) and event["event"] != "incident"

    worker = copying.running()
    copying.load.mixed(100)
    worker.wait_event("committed")
    tokens.go(mode)
    mark = worker.mark()
    with copying.writing(20):
        worker.wait_any(told, "event that says why there is no token", after=mark)
        assert worker.runs_on(LIFE_S)
        tokens.go("works")
        worker.wait_any(lambda event: event["event"] == "committed", "commit", after=worker.mark())
    copying.finish(worker)
    assert worker.seen("incident") == []
    copying.assert_exact()


@pytest.mark.tier("long")
def test_a_flow_that_never_had_a_token_ends_with_the_reason(copying: Copying, tokens: Tokens) -> None:
    tokens.go("fails")
    worker = copying.run()
    assert worker.wait_exit() == 3
    assert WHY["fails"] in worker.tail()
