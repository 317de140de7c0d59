"""A container in which systemd runs, with what the image has in /opt/eos and the unit of `configs/systemd`."""

from __future__ import annotations

import time
from pathlib import Path

from integration_tests.harness import image
from integration_tests.harness.image import docker
from integration_tests.harness.processes import wait_until
from tests.running.tiers import ROOT

UNIT = "eos-replicate.service"
IMAGE = "eos-replicate-test/systemd:latest"
RECIPE = f"""\
FROM {image.IMAGE} AS eos
FROM {image.BASE}
RUN apt-get update -qq
RUN DEBIAN_FRONTEND=noninteractive apt-get install -y -qq systemd systemd-sysv dbus procps >/dev/null
COPY --from=eos /opt/eos /opt/eos
COPY {UNIT} /etc/systemd/system/
CMD ["/sbin/init"]
"""


def built(directory: Path) -> None:
    """Build `IMAGE`; `image.built` comes first."""
    (directory / "Dockerfile").write_text(RECIPE)
    (directory / UNIT).write_text((ROOT / "configs" / "systemd" / UNIT).read_text())
    docker("build", "--quiet", "--network", "host", "--tag", IMAGE, str(directory))


class Machine:
    """One such container, in the network of the host. `etc` is its /etc/eos."""

    def __init__(self, name: str, etc: Path) -> None:
        self.name = name
        docker(
            "run", "--detach", "--name", name, "--network", "host", "--tmpfs", "/run", "--tmpfs", "/run/lock",
            "--cap-add", "SYS_ADMIN", "--cap-add", "SYS_PTRACE", "--security-opt", "seccomp=unconfined",
            "--cgroupns", "host", "--volume", "/sys/fs/cgroup:/sys/fs/cgroup:rw",
            "--volume", f"{etc}:/etc/eos:ro", IMAGE,
        )  # fmt: skip
        wait_until(lambda: self("systemctl", "is-system-running") in ("running", "degraded"), "systemd runs", self.log)

    def __call__(self, *words: str) -> str:
        """What a command in it prints, whatever its exit code is."""
        return docker("exec", self.name, *words, check=False).stdout.strip()

    def log(self) -> str:
        """What the unit's process has written, and what systemd says of it."""
        return self("journalctl", "-u", UNIT, "--no-pager", "-o", "cat")

    def state(self) -> str:
        """`active`, `activating`, `failed`, `inactive` or `deactivating`."""
        return self("systemctl", "is-active", UNIT)

    def wait_state(self, wanted: str) -> None:
        """Return when the unit has this state."""
        wait_until(lambda: self.state() == wanted, f"the unit is {wanted}", self.log)

    def pid(self) -> int:
        """Of the unit's main process, 0 where there is none."""
        return int(self("systemctl", "show", "--property", "MainPID", "--value", UNIT) or 0)

    def stop(self) -> float:
        """Stop the unit; the seconds that it took."""
        began_s = time.monotonic()
        self("systemctl", "stop", UNIT)
        return time.monotonic() - began_s

    def remove(self) -> None:
        """Nothing is left of it."""
        docker("rm", "--force", "--volumes", self.name)
