"""What programs that tests start can import."""

from __future__ import annotations

import subprocess
import sys

from tests.running.users_packages import users_packages

PROGRAM = """
import sys
import replicator.wire.protocol, cli.main
print("hypothesis" in sys.modules)
"""


def test_they_have_no_hypothesis_and_all_of_the_product() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=users_packages(), capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n", "kio imports it where it finds it"


def test_what_was_on_the_path_stays_there() -> None:
    path = users_packages({"PYTHONPATH": "/somewhere", "OTHER": "kept"})
    assert path["PYTHONPATH"].endswith(":/somewhere")
    assert path["OTHER"] == "kept"
