"""Where log lines go."""

from __future__ import annotations

import contextlib
import errno
import io

import pytest
import structlog

from replicator import logs


def test_lines_go_to_the_stderr_of_their_time(capsys: pytest.CaptureFixture[str]) -> None:
    """A command that is run inside another program ends with its own stderr closed; whoever logs later has another."""
    inner = io.StringIO()
    with contextlib.redirect_stderr(inner):
        logs.configure("json", "warning")
        log = structlog.get_logger()
        log.warning("inside")
    inner.close()
    log.warning("outside")
    assert '"event": "outside"' in capsys.readouterr().err


def test_lines_go_to_a_file_that_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    file = io.StringIO()
    logs.configure("json", "info", file)
    structlog.get_logger().bind(flow="orders").info("committed")
    structlog.get_logger().debug("unseen")
    assert '"flow": "orders"' in file.getvalue()
    assert "unseen" not in file.getvalue()
    assert capsys.readouterr().err == ""


def test_a_line_that_cannot_be_written_is_dropped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The terminal was closed, or the disk is full: what logs goes on."""

    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(errno.EIO, "Input/output error")

        def flush(self) -> None:
            raise OSError(errno.EIO, "Input/output error")

    logs.configure("json")
    with contextlib.redirect_stderr(Gone()):
        structlog.get_logger().info("lost")
    structlog.get_logger().info("shown")
    assert [line for line in capsys.readouterr().err.splitlines() if "event" in line] != []
