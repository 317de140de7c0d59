"""docs/how-exactly-once-works.md, block by block: each prints what the page says, on both brokers."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from integration_tests.harness.broker import BrokerHandle

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/how-exactly-once-works.md").read_text()
STEP = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
EXCERPT = re.compile(r"^```python from (\S+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9092"


@pytest.mark.tier("full")
def test_every_block_prints_what_the_page_says(target: BrokerHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples"))
    steps = STEP.findall(TEXT)
    assert len(steps) == TEXT.count("```python\n") > 9
    assert sum(bool(output) for _, output in steps) == TEXT.count("```text\n"), "an output stands behind no block"
    assert ADDRESS in steps[0][0]
    namespace: dict[str, Any] = {}
    for code, expected in steps:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code.replace(ADDRESS, target.bootstrap), "page", "exec"), namespace)
        assert printed.getvalue() == expected, code


def test_excerpts_are_from_the_files_they_name() -> None:
    excerpts = EXCERPT.findall(TEXT)
    assert excerpts
    for name, body in excerpts:
        assert body in (ROOT / name).read_text()
