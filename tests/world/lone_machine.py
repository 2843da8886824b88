# SPDX-License-Identifier: Apache-2.0
"""A machine that is alone: its own name, addresses and ports, a copy of /etc, and nothing in /var/lib.

On it the places, ports and addresses that pages name are free, and what is written there goes with it. It is namespaces of
this machine, which only root can make. In CI there is such a machine, or the run has failed; elsewhere the test is skipped.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

_TOOLS = ("unshare", "nsenter", "mount", "ip", "hostname")
_READY = "this machine is on\n"
# The last command keeps it until nobody wants it any more.
_BEGIN = """
cp -a /etc/. "$1/etc"
mount --bind "$1/etc" /etc
mount --bind "$1/lib" /var/lib
hostname "$2"
ip link set lo up
ip address add "$3/32" dev lo
echo this machine is on
exec cat
"""


@contextlib.contextmanager
def switched_on(home: pathlib.Path, name: str, address: str, beside: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words that have a command run there; what it keeps lies below `home`.

    `beside`: the words of another one, whose network it shares, loopback included.
    """
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        _give_up(f"it takes root, and {', '.join(missing) or 'nothing else'}")
    for place in ("etc", "lib"):
        (home / place).mkdir()
    own = [*beside, "unshare", "--mount", *(() if beside else ("--net",)), "--uts"]
    begin = [*own, "sh", "-ec", _BEGIN, "machine", str(home), name, address]
    with subprocess.Popen(
        begin, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != _READY:
            _give_up(holder.stderr.read().strip())
        # Leaving the block closes its standard input, and so ends it.
        yield "nsenter", f"--target={holder.pid}", "--mount", "--net", "--uts"


def _give_up(why: str) -> None:
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"not run: no machine can be made here: {why}")
