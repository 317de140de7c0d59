"""Why Spark failed, in one line, read out of the stack traces of two languages."""

from __future__ import annotations

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from replicator.model.errors import ConfigError

PACKAGE = "eos-replicate"
ADVICE = (
    f"install the same {PACKAGE}[spark] and Python on every executor, or ship them with spark.archives, and name that "
    "Python with spark.pyspark.python"
)
FAILURES = (Py4JError, PySparkException, OSError, EOFError)
"""What an action raises: the job failed (the first two), or the JVM is gone (py4j lets socket errors through)."""

_LINE_MAX = 500
_UNFIT = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH")
_NO_PYTHON = re.compile(r'Cannot run program "[^"]*"')
_CALLING = "An error occurred while calling "
_LOST_TASK = re.compile(r"most recent failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \(([^)]*)\): (.*)")
_ADVICE = re.compile(r" Consider setting '?spark\..*")


def root(error: Exception) -> str:
    """The innermost cause that says something, in one line."""
    raised = raised_in_task(error)
    if raised is not None:
        return raised
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lines = [line.removeprefix(": ") for line in lines if not line.startswith(_CALLING)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    telling = [cause for cause in causes if ": " in cause]
    if causes and causes[-1] in telling:
        return causes[-1][:_LINE_MAX]
    lost = _LOST_TASK.search(lines[0]) if lines else None
    if lost is not None:
        return _ADVICE.sub("", f"{lost[2]} (on {lost[1]})")[:_LINE_MAX]
    return (telling or causes or lines or [type(error).__name__])[-1 if causes else 0][:_LINE_MAX]


def raised_in_task(error: Exception) -> str | None:
    """The last line of the Python traceback when it was a task's own code that failed, not Spark or a process."""
    _, found, trace = str(error).partition("PythonException: Traceback (most recent call last):\n")
    if not found:
        return None
    python, _, _ = trace.partition("\n\tat ")
    lines = [line for line in python.splitlines() if line and not line[0].isspace()]
    return lines[-1][:_LINE_MAX] if lines else None


def unfit(error: Exception) -> ConfigError | None:
    """What to do about executors that can't run this program; None where that isn't why a job failed."""
    no_python = _NO_PYTHON.search(str(error))
    if no_python is not None:
        return ConfigError(f"the executors cannot start Python: {no_python[0]}{_place(error)}; {ADVICE}")
    raised = raised_in_task(error)
    if raised is not None and any(word in raised for word in _UNFIT):
        return ConfigError(f"the executors cannot run this program: {raised}{_place(error)}; {ADVICE}")
    return None


def _place(error: Exception) -> str:
    """Which executor it was that failed last, if Spark says so."""
    lost = _LOST_TASK.search(str(error))
    return f" (on {lost[1]})" if lost is not None else ""
