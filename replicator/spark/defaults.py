"""What the installed Spark was configured with: spark-defaults.conf, as spark-submit reads it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

NAME = "spark-defaults.conf"
_ENTRY = re.compile(r"([^\s=:]+)(?:\s*[=:])?\s*(.*)")


def load(env: Mapping[str, str], home: Path) -> dict[str, str]:
    """Read Spark's properties in the file that spark-submit would take; empty where there is none.

    Args:
        env: SPARK_CONF_DIR is looked at.
        home: where Spark is installed.

    Raises:
        OSError: the file can't be read.
    """
    path = Path(env.get("SPARK_CONF_DIR") or home / "conf") / NAME
    return parse(path.read_text(encoding="utf-8")) if path.is_file() else {}


def parse(text: str) -> dict[str, str]:
    """Read names and values of a Java properties file (`java.util.Properties`), those that begin with `spark.` only."""
    found: dict[str, str] = {}
    for line in re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t]*", r"\1", text).splitlines():
        entry = _ENTRY.match(line.strip())
        if entry is not None and entry[1].startswith("spark."):
            found[entry[1]] = entry[2].strip().replace("\\\\", "\\")
    return found
