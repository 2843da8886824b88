# SPDX-License-Identifier: Apache-2.0
"""Checks of the way to the API server: who asks, its name, its port, its certificate, its clock, and that it answers. It connects to nobody.

1. The certificate of the kubeconfig is in force, and not near its end. A token says nothing of its own end.
2. The name of the server has addresses.
3. One of them takes a connection.
4. What answers there shows a certificate of the kubeconfig's CA for that name, in force and not near its end.
5. The clocks differ by less than a minute. Backdating forgives a few minutes; tokens and Leases do not.
6. The API lets the credential in, and says that it is ready.
"""

from __future__ import annotations

from typing import Final

from handfast.bootstrap import diagnosis
from handfast.rules import check
from handfast.rules.diagnoses import ending, facts

_OK: Final = check.Verdict.OK
_FAILED: Final = check.Verdict.FAILED


_RENEWS: Final = f"`handfast up` renews it; {check.LOG}"


def credential(known: facts.Facts) -> check.Check:
    # 1. who asks
    name, certificate = "credential", known.credential
    if certificate is None:
        return check.Check(name, _OK, "the kubeconfig has no client certificate that could end")
    hint = "make a new one: `handfast up` renews admin.conf when it starts"
    return ending.leaf(name, f"the certificate of {certificate.subject}", certificate, known.now, hint)


def dns(known: facts.Facts) -> check.Check:
    # 2. it has addresses
    name, addresses = "dns", known.reach.addresses
    if isinstance(addresses, check.Unread):
        return _stopped(name, addresses)
    return check.Check(name, _OK, f"{known.reach.server} is at {check.several(addresses)}")


def tcp(known: facts.Facts) -> check.Check:
    # 3. one takes a connection
    name, connected = "tcp", known.reach.connected
    if isinstance(connected, check.Unread):
        return _stopped(name, connected)
    return check.Check(name, _OK, f"{connected} takes connections")


def tls(known: facts.Facts) -> check.Check:
    # 4. a certificate of the CA
    name, certificate = "tls", known.reach.certificate
    if isinstance(certificate, check.Unread):
        return _stopped(name, certificate)
    return ending.leaf(name, "the server's certificate", certificate, known.now, _RENEWS)


def clock(known: facts.Facts) -> check.Check:
    # 5. less than a minute
    name, ahead = "clock", known.reach.ahead
    if isinstance(ahead, check.Unread):
        return check.unread(name, ahead)
    if abs(ahead) >= diagnosis.SKEW:
        said = f"the clock here is {diagnosis.difference(-ahead)} the server's"
        return check.Check(name, _FAILED, said, "ClockSkew", "set the clocks, by NTP for instance")
    return check.Check(name, _OK, f"the clocks differ by {abs(ahead).total_seconds():.0f} s")


def api(known: facts.Facts) -> check.Check:
    # 6. it lets us in, and is ready
    name, version = "api", known.reach.version
    if isinstance(version, check.Unread):
        return _stopped(name, version)
    if isinstance(known.ready, check.Unread):
        return check.unread(name, known.ready)
    wrong = [row for row in failing(known.ready) if row.split(" ", 1)[0] not in STORES]
    if wrong:
        said = f"{version} answers, and is not ready: {check.several(wrong)}"
        return check.Check(name, _FAILED, said, "NotReady", check.LOG)
    return check.Check(name, _OK, f"{version} answers at {known.reach.server}")


# How the check of the store is called: here, and in Kubernetes.
STORES: Final = frozenset({"store", "etcd", "etcd-readiness"})


def failing(ready: str) -> list[str]:
    """The checks of /readyz?verbose that failed, with their words."""
    return [line.removeprefix("[-]") for line in ready.splitlines() if line.startswith("[-]")]


# What to do about a refusal of the server's, which names no next step itself.
_NEXT_STEPS: Final = {
    "Unauthorized": "take a kubeconfig of this cluster: it does not know this credential, or no longer",
    "TooManyRequests": "ask again in a minute; if that goes on, see who asks so much: the API server's audit log has them",
    "ServiceUnavailable": f"ask again in a minute; if that goes on, see what is said of its store; {check.LOG}",
    "InternalError": check.LOG,
}


def _stopped(name: str, trouble: check.Unread) -> check.Check:
    """A step that failed; those behind it are unknown."""
    verdict = check.Verdict.UNKNOWN if trouble is facts.NOT_ASKED else _FAILED
    hint = trouble.hint or _NEXT_STEPS.get(trouble.reason, "")
    return check.Check(name, verdict, trouble.why, trouble.reason, hint)
