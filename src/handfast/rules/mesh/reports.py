# SPDX-License-Identifier: Apache-2.0
"""What an agent may watch and report: only who shows a certificate of the mesh, and only about its own Pod. It writes nothing.

1. Who watches has shown a certificate that the trust anchors of the mesh vouch for, and that is in force [UNAUTHENTICATED].
2. It is in the ledger, and the ledger has that name for it [PERMISSION_DENIED]. By the entry it is known in which Pod it is.
3. It is not on the deny list [PERMISSION_DENIED].
4. A report is at most `MAX_REPORT` bytes [INVALID_ARGUMENT].
5. The Pod that it names is the one of the certificate [PERMISSION_DENIED]. A certificate of no Pod reports nothing but versions.
6. The certificate that it names is in the ledger, for the same Pod and in the same name: the one that was shown, or the next one
   [PERMISSION_DENIED]. When it ends is taken from the ledger, not from the report.
7. What is acknowledged was sent [INVALID_ARGUMENT]. In the first report it is what was had before, which was not sent from the future.
8. At most `MOST_EDGES` edges, each with a direction, a port, an identity that can be one, words that are reasons, and instants that are some [INVALID_ARGUMENT].

Not checked: whether an edge is true. An agent says about its own Pod what it likes.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_reports.py |
|---|---|---|---|---|
| a stranger | nothing, or an expired certificate | read the deny list, or report | 1 | test_who_shows_no_certificate_is_nobody |
| the issuer's key, stolen | a certificate that nobody wrote down | pass for a workload | 2 | test_a_certificate_that_is_not_in_the_ledger_is_nobodys |
| a workload that was revoked | its certificate | go on watching | 3 | test_who_is_revoked_watches_nothing |
| a workload | its certificate | report about another Pod of its account | 5 | test_a_report_about_another_pod_is_refused |
| … | its certificate | claim a later end, or somebody else's certificate | 6 | test_a_certificate_of_somebody_else_is_refused |
| … | its certificate | look up to date with a list that it never had | 7 | test_what_was_not_sent_is_not_acknowledged |
| a vandal in a Pod | its certificate | fill the store | 4, 8 | test_a_report_has_bounds |
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast.rules.mesh import certify, deny_list, names
from handfast.rules.mesh import issued as issued_module

UNAUTHENTICATED: Final = "UNAUTHENTICATED"
PERMISSION_DENIED: Final = "PERMISSION_DENIED"
REVOKED: Final = "Revoked"
NOT_IN_LEDGER: Final = "NotInLedger"

MAX_REPORT: Final = 64 << 10
MOST_EDGES: Final = 256
INBOUND: Final = "inbound"
OUTBOUND: Final = "outbound"
_DIRECTIONS: Final = (INBOUND, OUTBOUND)
_MOST_COUNT: Final = (1 << 63) - 1
LONGEST: Final = names.MAX_LENGTH
_WORD: Final = re.compile(r"[a-z-]{0,40}", re.ASCII)
# The last second of the year 9999.
_LAST_INSTANT: Final = 253_402_300_799
# How far the clocks of two replicas may be apart, by which versions are counted.
_APART: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Edge:
    """Whom a workload talks to: `peer` is an identity, empty where there is none; `count` requests so far, or connections that are none.

    `destination` is what the workload called. `unsecured` is why it is not secured, `refused` why such requests are refused, and `would_be_refused`
    why they would be if what is in audit were enforced: words, empty where it is not so. `first` and `last` are the seconds of an instant, 0 where nobody says.
    """

    direction: str
    peer: str
    port: int
    secured: bool
    count: int
    destination: str = ""
    unsecured: str = ""
    refused: str = ""
    would_be_refused: str = ""
    first: int = 0
    last: int = 0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says. `pod` is namespace and name, `certificate` the SHA-256 in hex; empty: nothing is said of it."""

    size: int = 0
    acknowledged: int = 0
    pod: tuple[str, str] = ("", "")
    certificate: str = ""
    edges: tuple[Edge, ...] = ()


def require_watcher(
    identity: str, certificate: issued_module.Certificate | None, denied: deny_list.DenyList
) -> issued_module.Certificate:
    """The certificate of who may watch. `identity` is empty for who showed none; `certificate` is what the ledger has of it."""
    # 1. a certificate that is believed
    if not identity:
        raise certify.Refusal(
            UNAUTHENTICATED, "show a certificate of the mesh that is in force: get one by Certify", "NoIdentity"
        )
    # 2. in the ledger, in that name
    if certificate is None or identity not in certificate.names:
        raise certify.Refusal(
            PERMISSION_DENIED,
            f"the certificate of {identity} is not in the ledger: get another by Certify",
            NOT_IN_LEDGER,
        )
    require_not_denied(certificate, denied)
    return certificate


def require_not_denied(certificate: issued_module.Certificate, denied: deny_list.DenyList) -> None:
    """Return if nothing of a certificate is denied."""
    # 3. not on the deny list
    if why := denied.denied(certificate):
        raise certify.Refusal(PERMISSION_DENIED, why, REVOKED)


def require_own(
    report: Report, shown: issued_module.Certificate, issued: issued_module.Issued
) -> issued_module.Certificate:
    """The certificate that the reporter has now, where a report is about its own Pod and within the bounds."""
    _require_bounds(report)
    holder = shown.holder
    # 5. its own Pod, and none where it has none
    if report.pod not in {("", ""), (holder.namespace, holder.pod)}:
        raise certify.Refusal(
            PERMISSION_DENIED, f"the certificate is not that of Pod {'/'.join(report.pod)[:512]}", "AnotherPod"
        )
    if not holder.pod and report.edges:
        raise certify.Refusal(PERMISSION_DENIED, "the certificate is that of no Pod, which has no edges", "NoPod")
    if not report.certificate or report.certificate == shown.fingerprint:
        return shown
    # 6. in the ledger, of the same Pod and name
    other = issued.find(report.certificate)
    if other is None or (other.holder.revocable, other.names) != (holder.revocable, shown.names):
        raise certify.Refusal(
            PERMISSION_DENIED,
            "the certificate that is reported is not one of this Pod in the ledger",
            "AnotherCertificate",
        )
    return other


def _require_bounds(report: Report) -> None:
    # 4. not too large
    if report.size > MAX_REPORT:
        raise _invalid(f"a report has {report.size} bytes; at most {MAX_REPORT} are allowed", "ReportTooLarge")
    # 8. edges
    if len(report.edges) > MOST_EDGES:
        raise _invalid(f"edges: {len(report.edges)}; at most {MOST_EDGES} are allowed", "TooManyEdges")
    for edge in report.edges:
        require_edge(edge)


def require_edge(edge: Edge) -> None:
    """Return if an edge can be one (8)."""
    if edge.direction not in _DIRECTIONS:
        raise _invalid(f"direction: {edge.direction[:32]!r}; {' or '.join(_DIRECTIONS)} is allowed", "BadEdge")
    if not 0 < edge.port < 1 << 16:
        raise _invalid(f"port: {edge.port}; 1 to 65535 are allowed", "BadEdge")
    for field, text in (("peer", edge.peer), ("destination", edge.destination)):
        if len(text) > LONGEST or not text.isascii() or not text.isprintable():
            raise _invalid(f"{field}: at most {LONGEST} printable characters are allowed", "BadEdge")
    for word in (edge.unsecured, edge.refused, edge.would_be_refused):
        if not _WORD.fullmatch(word):
            raise _invalid("a reason has at most 40 small letters and hyphens", "BadEdge")
    if edge.count > _MOST_COUNT:
        raise _invalid(f"count: {edge.count}; at most {_MOST_COUNT} is allowed", "BadEdge")
    if not 0 <= edge.first <= edge.last <= _LAST_INSTANT:
        raise _invalid("an edge was seen first, and then last, before the year 10000", "BadEdge")


def require_had(acknowledged: int, now: datetime.datetime) -> None:
    """Return if the version in a first report may have been sent before, by this process or another."""
    # 7. not from the future
    if acknowledged > version_at(now + _APART):
        raise _invalid(f"acknowledged: {acknowledged} was never sent", "NeverSent")


def require_sent(acknowledged: int, sent: int) -> None:
    """Return if this version, or a later one, was sent on the same stream."""
    # 7. what was sent
    if acknowledged > sent:
        raise _invalid(f"acknowledged: {acknowledged}; the newest that was sent is {sent}", "NeverSent")


def version_at(now: datetime.datetime) -> int:
    """The version of what is computed at this instant: milliseconds, which no restart takes back."""
    return int(now.timestamp() * 1000)


def next_version(before: int, now: datetime.datetime) -> int:
    """The version after this one: never smaller, whatever the clock says."""
    return max(before + 1, version_at(now))


def _invalid(text: str, reason: str) -> certify.Refusal:
    return certify.Refusal(certify.INVALID_ARGUMENT, text, reason)
