"""`incident resolve`: what is wrong with a command line is said before anything is asked or written."""

from __future__ import annotations

import getpass
import os
import socket

import pytest

from cli import main
from cli.commands.incident_resolve import whoami


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--retry, --skip, --set-aside, --restart-topic or --adopt OFFSET"),
        (["--skip", "--adopt", "3", "--why", "x"], "--adopt OFFSET"),
        (["--adopt", "3"], "can't be checked by the flow: say why"),
        (["--adopt", "-1", "--why", "x"], "an offset, or map"),
        (["--adopt", "end", "--why", "x"], "an offset, or map"),
        (["--skip"], "say why"),
        (["--set-aside"], "say why"),
        (["--restart-everything"], "No such option"),
        (["--restart-topic"], "after those of another one: say why"),
        (["--retry", "--wait", "-1"], "x>=0"),
    ],
)
def test_what_is_missing_is_said(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["incident", "resolve", "3f2a", *options, "-c", "/nowhere.yaml"]) == 2
    assert said in capsys.readouterr().err


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under any number: getpass looks into the environment, then for the number's name."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    assert whoami() == f"uid 123456@{socket.gethostname()}"
