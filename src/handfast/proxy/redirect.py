# SPDX-License-Identifier: Apache-2.0
"""Redirecting a Pod's connections to its proxy, with the machine's iptables. Which rules there are is `rules.mesh.redirection`'s to say.

1. IPv4 is redirected always. IPv6 is where this network has it; where it has an address that others reach and cannot be redirected, that is refused:
   those connections would go past the proxy.
2. What is there is read, then changed in one transaction for each version of IP, which waits for others that hold the tables.
3. Who may not change the tables is told what is missing.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from handfast import errors
from handfast.rules.mesh import redirection

_PROGRAMS: Final = {redirection.Version.FOUR: "iptables", redirection.Version.SIX: "ip6tables"}
# Where Debian has them, and where PATH of a user has nothing.
_PLACES: Final = "/usr/sbin:/sbin"
_ADDRESSES: Final = pathlib.Path("/proc/net/if_inet6")
# The column of an address's scope, and the scope of those that others reach (RFC 3493; ipv6_addr_scope).
_SCOPE: Final = 3
_GLOBAL: Final = "00"
# How long another that holds the tables is waited for, and how long it may take in all.
_WAIT: Final = 30
_SECONDS: Final = 60
_NOT_ALLOWED: Final = ("permission denied", "operation not permitted", "you must be root")


class Missing(errors.Refused):
    """There is no iptables."""

    reason = "IptablesMissing"
    hint = "install it: on Debian and Ubuntu, `apt-get install iptables`"


class NotAllowed(errors.Refused):
    """The tables are somebody else's to change."""

    reason = "NetAdminMissing"
    hint = "run it as root of the Pod's own network, or give the container the capabilities NET_ADMIN and NET_RAW"


class Failed(errors.Unavailable):
    """The program did not do it."""

    reason = "IptablesFailed"


def apply(wanted: redirection.Redirection) -> list[redirection.Version]:
    """Redirect; the versions of IP for which it was done."""
    return _each(lambda version, saved: redirection.applied(wanted, version, saved))


def undo() -> list[redirection.Version]:
    """Take away what `apply` made; the versions of IP for which something was there."""
    return _each(lambda _, saved: redirection.undone(saved))


def _each(transaction: Callable[[redirection.Version, str], str]) -> list[redirection.Version]:
    done = []
    for version, program in _PROGRAMS.items():
        try:
            changed = _change(version, program, transaction)
        except (Missing, Failed):
            # 1. needed for IPv4, and where there is IPv6
            if version is redirection.Version.FOUR or is_reached_by_ipv6():
                raise
            continue
        done += [version] if changed else []
    return done


def _change(version: redirection.Version, program: str, transaction: Callable[[redirection.Version, str], str]) -> bool:
    # 2. read, then changed at once
    rows = transaction(version, _run([_find(f"{program}-save"), "-t", "nat"]))
    if rows:
        _run([_find(f"{program}-restore"), "--noflush", f"--wait={_WAIT}"], rows)
    return bool(rows)


def has_ipv6() -> bool:
    """Whether this network has any address of IPv6, so that it can be listened on."""
    return bool(_scopes())


def is_reached_by_ipv6() -> bool:
    """Whether it has one that others reach."""
    return _GLOBAL in _scopes()


def _scopes() -> list[str]:
    try:
        return [line.split()[_SCOPE] for line in _ADDRESSES.read_text(encoding="ascii").splitlines()]
    except OSError:
        return []


def _find(program: str) -> str:
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:{_PLACES}")
    if path is None:
        raise Missing(f"there is no {program}, which redirects connections")
    return path


def _run(words: Sequence[str], rows: str = "") -> str:
    try:
        done = subprocess.run(  # noqa: S603  words of our own
            words, input=rows, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refusal(words[0], str(error)) from error
    if done.returncode != 0:
        raise _refusal(words[0], done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def _refusal(program: str, why: str) -> errors.HandfastError:
    # 3. what is missing
    if any(words in why.lower() for words in _NOT_ALLOWED):
        return NotAllowed("this process may not change how connections of this network are redirected")
    return Failed(f"{program}: {why[:500]}")
