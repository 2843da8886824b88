# SPDX-License-Identifier: Apache-2.0
"""A machine that systemd has booted, inside one that is alone (`lone_machine`): systemd is process 1 there, and has nobody's units but its own.

None of this machine's own units is there: some of them would clean up /tmp, or set the clock. systemd itself is real: what is enabled is
started in the sandbox that its unit asks for.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from tests.scenarios import up_world

# What the units of a newcomer lead to, and nothing behind it.
_TARGETS = ("sysinit", "basic", "multi-user", "network-online", "shutdown")
_BEGIN = """
hostname > /etc/hostname
mount -t tmpfs tmpfs /run
for each in "$1"/empty/*; do mount --bind "$each" "/lib/systemd/$(basename "$each")"; done
if test -e /sys/fs/cgroup/cgroup.controllers; then
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
else
    mount -t tmpfs cgroup /sys/fs/cgroup
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd,xattr cgroup /sys/fs/cgroup/systemd
fi
export container=handfast-test
exec /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=0
"""


@contextlib.contextmanager
def booted(home: pathlib.Path, enter: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The words that have a command run there, on a machine that `enter` leads to; what it keeps lies below `home`."""
    if not pathlib.Path("/lib/systemd/systemd").exists() or shutil.which("systemctl") is None:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("not run: there is no systemd")
    units = home / "empty" / "system"
    units.mkdir(parents=True)
    (home / "empty" / "system-generators").mkdir()
    for name in _TARGETS:
        (units / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    begin = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--cgroup", "sh", "-ec", _BEGIN]
    with (
        (home / "boot.log").open("wb") as log,
        subprocess.Popen(
            [*enter, *begin, "systemd", str(home)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as made,
    ):
        try:
            up_world.until(lambda: _children(made.pid), what="process 1")
            inside = ("nsenter", f"--target={_children(made.pid)[0]}", "--mount", "--net", "--uts", "--pid")
            up_world.until(lambda: _is_up(inside), what=f"systemd: {(home / 'boot.log').read_text()}")
            yield inside
        finally:
            made.kill()


def _children(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _is_up(inside: Sequence[str]) -> bool:
    command = [*inside, "systemctl", "is-active", "multi-user.target"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
