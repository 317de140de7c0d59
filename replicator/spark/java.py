"""The Java that Spark will start: found as Spark's own launcher finds it, and checked before Spark fails on it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from replicator.model.errors import ConfigError

JAVA_MIN = 17
_ADVICE = f"install a Java runtime {JAVA_MIN} or later and put it on PATH, or point JAVA_HOME at it"
_ANSWER_S_MAX = 30
_QUOTED = re.compile(r'version "(\d+)(?:\.(\d+))?')


def check(env: Mapping[str, str]) -> int:
    """Return the major version of the Java that Spark's launcher would start (`bin/spark-class`: JAVA_HOME, then PATH).

    Raises:
        ConfigError: there is none, it does not run, or it is older than Java 17, the oldest that Spark 4 takes.
    """
    java, found_by = _located(env)
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=_ANSWER_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"Spark needs Java, and {java} ({found_by}) does not run: {error}; {_ADVICE}") from error
    said = f"{done.stderr}\n{done.stdout}"
    version = major(said)
    if done.returncode != 0 or version is None:
        first = next((line.strip() for line in said.splitlines() if line.strip()), f"exit code {done.returncode}")
        raise ConfigError(f"Spark needs Java, and {java} ({found_by}) does not tell its version: {first}; {_ADVICE}")
    if version < JAVA_MIN:
        raise ConfigError(f"Spark needs Java {JAVA_MIN} or later, and {java} ({found_by}) is Java {version}; {_ADVICE}")
    return version


def major(said: str) -> int | None:
    """Find the major version in the output of `java -version`; "1.8.0_392" is Java 8. None: there is none in it."""
    found = _QUOTED.search(said)
    if found is None:
        return None
    first, second = found.groups()
    return int(second) if first == "1" and second else int(first)


def _located(env: Mapping[str, str]) -> tuple[str, str]:
    """Return the executable, and in words how it was found."""
    home = env.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        if not java.is_file():
            raise ConfigError(f"Spark needs Java, and JAVA_HOME is {home}, which has no bin/java; {_ADVICE}")
        return str(java), "by JAVA_HOME"
    on_path = shutil.which("java", path=env.get("PATH", ""))
    if on_path is None:
        raise ConfigError(f"Spark needs Java, and there is none on PATH and no JAVA_HOME; {_ADVICE}")
    return on_path, "on PATH"
