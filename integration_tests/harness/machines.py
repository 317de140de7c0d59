"""Machines for tests: processes that see the operating system and a disk of their own, and nothing else of this one.

A machine is a mount namespace with another root. What is listed below is mounted read-only; the driver's checkout, its
environment and its temporary directories aren't there at all. The network and the process ids are those of this
machine, so that a test reaches ports and kills processes as usual. Used by `spark_cluster`.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc")
WITH_JAVA = "JAVA_HOME"
RUN_S_MAX = 60.0
HOSTS = "127.0.0.1 localhost\n"


class Machine:
    """A host name and a disk, for the processes that are started on it. They end when whoever started them ends them;
    its mounts end with the last of them."""

    def __init__(
        self, directory: Path, name: str, address: str, disks: Mapping[str, Path], writable: Sequence[str] = ()
    ) -> None:
        """
        Args:
            directory: becomes the root; what is written on the machine stands there.
            address: of the host name, for the machine itself.
            disks: further read-only directories: where they stand on the machine, and where here.
            writable: directories that are made on the machine's own disk.
        """
        self.name, self.root = name, directory
        self._mounts: dict[str, Path] = {}
        for place in (*SYSTEM, sys.base_prefix, os.environ.get(WITH_JAVA, "")):
            self._take(place)
        self._mounts |= disks
        for place in (*self._mounts, *writable, "/proc", "/dev", "/tmp"):
            self.here(place).mkdir(parents=True, exist_ok=True)
        self._hosts = directory.with_name(f"{directory.name}.hosts")
        self._hosts.write_text(f"{HOSTS}{address} {name}\n")

    def here(self, place: str) -> Path:
        """Where this machine has a file of that one, unless it is on a read-only disk."""
        return self.root / place.lstrip("/")

    def popen(self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process with nothing but `environment`; its id is that of the program itself."""
        return subprocess.Popen(self._command(command, environment), stdout=log, stderr=subprocess.STDOUT)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return subprocess.run(
            self._command(command, {}), capture_output=True, text=True, timeout=RUN_S_MAX, check=False
        )

    def _take(self, place: str) -> None:
        """A directory of this machine, under its name, if it isn't within another one."""
        path = Path(place)
        if not place or not path.is_dir() or any(path.is_relative_to(there) for there in self._mounts):
            return
        if path.is_symlink():
            link = self.here(place)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(path.readlink())
        else:
            self._mounts[place] = path

    def _command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        root = shlex.quote(str(self.root))
        lines = ["set -eu"]
        for place, path in self._mounts.items():
            there = shlex.quote(str(self.here(place)))
            lines += [f"mount --bind {shlex.quote(str(path))} {there}", f"mount -o remount,bind,ro {there}"]
        lines += [f"mount --rbind /proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        lines += [f"mount --bind {shlex.quote(str(self._hosts))} {root}/etc/hosts"]
        lines += [f"echo {shlex.quote(self.name)} > /proc/sys/kernel/hostname"]
        paths = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"}
        if WITH_JAVA in os.environ:
            paths[WITH_JAVA] = os.environ[WITH_JAVA]
        told = [f"{name}={value}" for name, value in {**paths, **environment}.items()]
        lines += [f"exec chroot {root} {shlex.join(['/usr/bin/env', '-i', *told, *command])}"]
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", *user, "--mount", "--uts", "sh", "-c", "\n".join(lines)]


def problem(directory: Path) -> str | None:
    """Why there can't be machines here; None if there can."""
    try:
        done = Machine(directory, "probe", "127.0.0.1", {}).run("true")
    except OSError as error:
        return f"there can't be mount namespaces here: {error}"
    return None if done.returncode == 0 else f"there can't be mount namespaces here: {done.stderr.strip()}"
