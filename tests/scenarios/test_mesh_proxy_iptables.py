# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh proxy iptables` on real tables, in a network of its own: root is not needed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from handfast.rules.mesh import redirection

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

HANDFAST = f"{sys.executable} -P -m handfast mesh proxy iptables"
THEIRS = "iptables -t nat -N THEIRS; iptables -t nat -A PREROUTING -p tcp -j THEIRS"


def alone(script: str) -> subprocess.CompletedProcess[str]:
    """In a network that nobody else has, as whoever may change its tables."""
    missing = [tool for tool in ("unshare", "iptables", "ip6tables") if shutil.which(tool, path=_path()) is None]
    words = ["unshare", "--user", "--map-user=2102", "--keep-caps", "--net", "sh", "-ec", script]
    if not missing:
        probe = subprocess.run([*words[:-1], "iptables-save -t nat"], capture_output=True, env=_env(), check=False)
        missing = [] if probe.returncode == 0 else ["user namespaces with tables"]
    if missing:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up(f"not run: there is no {', '.join(missing)} here")
    return subprocess.run(words, capture_output=True, text=True, timeout=100, check=False, env=_env())


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": _path()}


def rules(output: str) -> list[str]:
    """What iptables-save has printed, without counters and comments."""
    return [line.partition(" [")[0] for line in output.splitlines() if line.startswith((":", "-A"))]


def test_it_is_made_once_however_often_it_is_called_and_undone_without_a_trace():
    flags = "--proxy-uid 2102 --inbound-ports-to-ignore 4190,4191,25-30 --subnets-to-ignore 10.0.0.0/8,fd00::/8"
    show = "iptables-save -t nat; echo =; ip6tables-save -t nat; echo ="
    done = alone(
        f"{THEIRS}; {show}; {HANDFAST} {flags} >&2; {show}; {HANDFAST} {flags} >&2; {show};"
        f"{HANDFAST} --undo >&2; {show}; {HANDFAST} --undo >&2; {HANDFAST} --incoming-proxy-port 14143 >&2; {show}"
    )
    assert done.returncode == 0, done.stderr
    before4, before6, once4, once6, twice4, twice6, after4, after6, other4, _, _ = map(rules, done.stdout.split("=\n"))
    assert f"-A {redirection.INBOUND} -s 10.0.0.0/8 -j RETURN" in once4
    assert f"-A {redirection.INBOUND} -s fd00::/8 -j RETURN" in once6
    assert f"-A {redirection.INBOUND} -p tcp -j REDIRECT --to-ports 4143" in once4
    assert (twice4, twice6) == (once4, once6)
    assert after4 == before4
    assert "-A PREROUTING -p tcp -j THEIRS" in after4
    # Of IPv6 nothing had been there: an empty table prints nothing, or its chains.
    assert [row for row in after6 if not row.endswith(" ACCEPT")] == [
        row for row in before6 if not row.endswith(" ACCEPT")
    ]
    assert f"-A {redirection.INBOUND} -p tcp -j REDIRECT --to-ports 14143" in other4
    assert "TCP over IPv4 and IPv6 is redirected: inbound to port 4143, outbound to port 4140" in done.stderr
    assert "nothing was redirected" in done.stderr


def test_without_the_right_to_change_the_tables_it_is_refused():
    # Root of a user namespace that has no network of its own.
    done = alone(f"exec setpriv --bounding-set=-net_admin --inh-caps=-all {HANDFAST}")
    assert done.returncode == 1
    assert "reason: NetAdminMissing" in done.stderr
    assert "NET_ADMIN" in done.stderr


def test_a_bad_list_changes_nothing():
    done = alone(f"{HANDFAST} --inbound-ports-to-ignore 25,x || true; iptables-save -t nat")
    assert "reason: BadRedirection" in done.stderr
    assert redirection.INBOUND not in done.stdout
