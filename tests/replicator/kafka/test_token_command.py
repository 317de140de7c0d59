"""A cluster's token command, as a real process: what it prints, how it fails, and when it is run again."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

from replicator.config import Cluster, FlowFileError, load_text
from replicator.kafka import failures
from replicator.kafka.kept_token import REFUSED_AGAIN_S, KeptToken
from replicator.kafka.properties import client_properties
from replicator.kafka.token_command import kept_token
from replicator.model.errors import Unreachable
from replicator.wire.access import access

pytestmark = pytest.mark.tier("extended")

TEXT = """
clusters:
  {name}: {{properties: {{bootstrap.servers: "localhost:9092", {properties}}}, {keys}}}
flows:
  orders: {{source: {name}, target: {name}, topics: [orders], engine: batches}}
"""
LOGIN = "security.protocol: sasl_plaintext, sasl.mechanism: OAUTHBEARER"


def loaded(name: str, command: list[str], properties: str = LOGIN, **keys: Any) -> Cluster:
    written = ", ".join(f"{key}: {json.dumps(value)}" for key, value in {"token_command": command, **keys}.items())
    return load_text(TEXT.format(name=name, properties=properties, keys=written), env={}).clusters[name]


def command(directory: Path, body: str) -> list[str]:
    """A program that counts its runs in a file."""
    script = directory / "token.py"
    script.write_text(f"import sys, time, os\nopen({str(directory / 'runs')!r}, 'a').write('x')\n{body}\n")
    return [sys.executable, str(script), "--argument=s3cret"]


def runs(directory: Path) -> int:
    return len((directory / "runs").read_text())


def jwt(claims: Mapping[str, Any]) -> str:
    return f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.s"


def test_what_it_prints_is_shown_by_both_clients_and_asked_for_once(tmp_path: Path) -> None:
    extensions = f"{LOGIN}, sasl.oauthbearer.extensions: pool=p"
    cluster = loaded("both", command(tmp_path, "print('opaque', flush=True)"), extensions, token_life_ms=60_000)
    tokens = access(cluster).tokens
    assert tokens is not None
    assert tokens.first_message() == b"n,,\x01auth=Bearer opaque\x01pool=p\x01\x01"
    token, until_s, _, said = client_properties(cluster)["oauth_cb"](None)
    assert (token, said, runs(tmp_path)) == ("opaque", {"pool": "p"}, 1)
    assert 50 < until_s - time.time() <= 60
    assert "opaque" not in repr((cluster, tokens))


def test_a_jwt_says_itself_until_when_it_holds(tmp_path: Path) -> None:
    end_s = time.time() + 3_000
    found = kept_token(loaded("jwt", command(tmp_path, f"print({jwt({'exp': end_s})!r})")))
    assert abs(found.with_end()[1] - end_s) < 2
    for claims in ({"exp": "later"}, {"exp": float("nan")}, {"exp": 10**400}, {}):  # none that can be relied on
        plain = kept_token(loaded("jwt", command(tmp_path, f"print({jwt(claims)!r})"), token_life_ms=1_000_000))
        assert 900 < plain.with_end()[1] - time.time() <= 1_000
        kept_token.__globals__["_kept"].cache_clear()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("print('tok'); sys.exit('no ticket: tok')", r"ended with exit code 1: no ticket: \[hidden\]$"),
        (
            "print('a' * 900); print('curl: ' + 'a' * 900, file=sys.stderr); sys.exit(2)",
            r"ended with exit code 2: curl: \[hidden\]$",
        ),
        (
            """print('{"access_token": "opaque-token"}'); print('+ T=opaque-token', file=sys.stderr)""",
            r"what it printed is no token: \+ T=\[hidden\]$",
        ),
        (
            """print('{"access_token": "opaque-token=="}'); print('+ T=opaque-token', file=sys.stderr)""",
            r"what it printed is no token: \+ T=\[hidden\]$",
        ),
        ("print('eyJhbGciOiJ9.eyJleHAiOjF9.c2lnbmF0dXJl', file=sys.stderr); sys.exit(1)", r"code 1: \[hidden\]$"),
        ("print()", "it printed nothing$"),
        ("print('a b')", "what it printed is no token$"),
        ("print('x' * 300_000)", "what it printed is no token$"),
        ("os.kill(os.getpid(), 9)", "it was ended by signal 9$"),
        (
            "os.system('sleep 600 &'); print('w' * 9, file=sys.stderr, flush=True); time.sleep(600)",
            "within 0.7 s, and was killed: w{9}$",
        ),
        (f"print({jwt({'exp': 1_000})!r})", "the token that it printed has expired [0-9]+ s ago$"),
    ],
)
def test_what_goes_wrong_is_told_by_both_clients_without_token_or_arguments(
    tmp_path: Path, body: str, why: str
) -> None:
    cluster = loaded(f"bad-{tmp_path.name}", command(tmp_path, body), token_timeout_ms=700)
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match=why) as failed:
        client_properties(cluster)
    assert time.monotonic() - began_s < 5
    assert str(failed.value).startswith(f"cluster {cluster.name!r}: no token: token_command {sys.executable}: ")
    assert "s3cret" not in str(failed.value)
    tokens = access(cluster).tokens
    assert tokens is not None
    with pytest.raises(Unreachable, match=why):  # the same: so shortly after, it isn't run again
        tokens.token()
    assert runs(tmp_path) == 1
    raised = KafkaError(KafkaError._AUTHENTICATION, "OAuth callback raised exception")
    assert str(failures.classify(raised, cluster.name, "log in")) == str(failed.value)


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match=r"token_command /nowhere/token: it can't be started: No such file"):
        kept_token(loaded("away", ["/nowhere/token"])).token()


def let_ask() -> None:
    """Until nobody asks for a token beside."""
    for thread in threading.enumerate():
        if thread.name == "token":
            thread.join(30)
            assert not thread.is_alive()


def test_a_login_waits_for_no_other_token_while_its_own_holds_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, asked, answer = [1_000.0], list[float](), threading.Event()
    monkeypatch.setattr("replicator.kafka.kept_token.time.monotonic", lambda: now_s[0])

    def ask() -> tuple[str, float]:
        asked.append(now_s[0])
        assert len(asked) == 1 or answer.wait(30)
        return f"t{len(asked)}", 100.0

    kept = KeptToken(ask)
    with ThreadPoolExecutor(8) as logins:
        try:
            assert kept.token() == "t1"
            now_s[0] = 1_081.0
            for login in [logins.submit(kept.with_end) for _ in range(8)]:
                token, until_s = login.result(10)
                assert token == "t1"
                assert 17 < until_s - time.time() < 21
            assert asked == [1_000.0, 1_081.0]  # one asks
            now_s[0] = 1_096.0
            late = [logins.submit(kept.token) for _ in range(2)]  # those wait: what they have has nearly ended
        finally:
            answer.set()
        assert [login.result(10) for login in late] == ["t2", "t2"]
    answer.clear()
    kept.refused()
    now_s[0] += REFUSED_AGAIN_S
    with ThreadPoolExecutor(1) as logins:
        refused = logins.submit(kept.token)  # waits, too
        answer.set()
        assert refused.result(10) == "t3"
    assert len(asked) == 3


def test_the_old_token_does_until_its_end_and_a_refused_one_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, asked = [1_000.0], list[float]()
    monkeypatch.setattr("replicator.kafka.kept_token.time.monotonic", lambda: now_s[0])
    good = True

    def ask() -> tuple[str, float]:
        asked.append(now_s[0])
        if not good:
            raise Unreachable("no ticket")
        return f"t{len(asked)}", 100.0

    kept = KeptToken(ask)
    assert [kept.token(), kept.token()] == ["t1", "t1"]
    good, now_s[0] = False, 1_081.0
    assert kept.token() == "t1"
    let_ask()
    assert kept.failure == "no ticket"
    now_s[0] = 1_099.0
    assert (kept.token(), len(asked)) == ("t1", 3)
    now_s[0] = 1_101.0
    with pytest.raises(Unreachable, match="no ticket"):
        kept.token()
    good, now_s[0] = True, 1_103.0
    assert (kept.token(), kept.failure) == ("t5", "")
    kept.refused()
    assert kept.token() == "t5"  # it is new
    now_s[0] += REFUSED_AGAIN_S
    assert kept.token() == "t6"


@pytest.mark.parametrize(
    ("command_", "properties", "why"),
    [
        (["token"], "security.protocol: ssl", r"token_command: needs security\.protocol"),
        (["token"], f"{LOGIN}, sasl.oauthbearer.method: oidc", "token_command: tokens come from one place"),
        ("token --now", LOGIN, r"token_command: expected a list of words, \[command, argument\]: no shell reads it"),
        (["bin/token"], LOGIN, "expected an absolute path, or a name that is looked for in PATH"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(command_: Any, properties: str, why: str) -> None:
    with pytest.raises(FlowFileError, match=why):
        loaded("wrong", command_, properties)


ESCAPES = """
if os.fork() == 0:
    os.setsid()
    open({pids!r}, 'a').write(f'{{os.getpid()}} ')
    os.kill(os.getppid(), {number})
    time.sleep(600)
{rest}
"""
"""Leaves a process behind that holds its pipes."""


@pytest.mark.parametrize(("number", "rest"), [(0, "print('opaque', flush=True)"), (9, "time.sleep(600)")])
def test_what_leaves_its_group_holds_no_thread_and_no_file_of_ours(tmp_path: Path, number: int, rest: str) -> None:
    pids = tmp_path / "pids"
    words = command(tmp_path, ESCAPES.format(pids=str(pids), number=number, rest=rest))

    def run(times: int) -> tuple[int, int]:
        for _ in range(times):
            kept_token.__globals__["_kept"].cache_clear()
            with suppress(Unreachable):
                assert kept_token(loaded("escapes", words)).token() == "opaque"
        return threading.active_count(), len(list(Path("/dev/fd").iterdir()))

    try:
        before = run(1)
        began_s = time.monotonic()
        assert run(20) == before
        assert time.monotonic() - began_s < 20
        assert runs(tmp_path) == 21
    finally:
        for pid in pids.read_text().split():
            os.kill(int(pid), signal.SIGKILL)


ASKING = """
import os, sys, threading
from replicator.kafka.child_group import LastBytes, run_child
threading.Thread(target=run_child, args=({words!r}, 500.0, LastBytes(9), LastBytes(9)), daemon=True).start()
sys.stdin.read()
os._exit(0)
"""


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_program_that_hangs_ends_with_the_process(tmp_path: Path, number: signal.Signals | None) -> None:
    """Which ends while another thread waits for the token, without handlers of Python's at its end."""
    pid, whole = str(tmp_path / "pid"), tmp_path / "pid.whole"
    body = f"open({pid!r}, 'w').write(str(os.getpid())); os.rename({pid!r}, {str(whole)!r})"
    program = ASKING.format(words=tuple(command(tmp_path, f"{body}; time.sleep(600)")))
    deadline_s = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as asking:
        while not whole.exists():
            assert time.monotonic() < deadline_s, "it never began"
            time.sleep(0.01)
        if number is not None:
            asking.send_signal(number)
        asking.communicate(timeout=30)
    process = Path("/proc") / whole.read_text()
    while process.exists() and "State:\tZ" not in (process / "status").read_text():
        assert time.monotonic() < deadline_s, "it runs"
        time.sleep(0.01)
