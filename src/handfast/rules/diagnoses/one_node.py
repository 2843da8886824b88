# SPDX-License-Identifier: Apache-2.0
"""How far one node has come: its request was created, approved, signed, and its certificate is used. It reads nothing.

1. Somebody asked for its client certificate: there is a request, or a certificate in the ledger. Requests are deleted in time, certificates stay in the ledger.
2. A request that waits says why. A certificate that is there was approved.
3. What is approved is signed, and in the ledger.
4. What was signed is used: the Node has registered, is seen, and its certificate is neither over nor late nor revoked.
5. What comes after a step that failed is unknown.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects, signer_names, signing_requests
from handfast.rules import check
from handfast.rules.certificates import kubelet
from handfast.rules.diagnoses import facts
from handfast.rules.nodes import overview

NAMES: Final = ("created", "approved", "signed", "used")
_OK: Final = check.Verdict.OK
_FAILED: Final = check.Verdict.FAILED
_SIGNER: Final = "see that the controller csrsigning runs"


class _Node(msgspec.Struct, frozen=True):
    """What there is of it: its newest request, what stands in the objects, and how it is listed."""

    name: str
    request: objects.Document | None
    requests: facts.Requests
    known: overview.Known
    row: overview.Row | None

    @property
    def title(self) -> str:
        return jsonpath.text(self.request, "metadata", "name")

    def condition(self, kind: str) -> str | None:
        """What a condition of the request says; None: it has none of this type."""
        for row in jsonpath.mappings(self.request, "status", "conditions"):
            if row.get("type") == kind:
                return jsonpath.text(row, "message") or jsonpath.text(row, "reason")
        return None


def checks(node: str, known: facts.Facts) -> tuple[check.Check, ...]:
    """The four of them, in order."""
    read, requests = known.nodes, known.requests
    if isinstance(read, overview.Standing):
        raise errors.Misuse("one node is judged by what there is of it, not by how all of them stand")
    if isinstance(read, check.Unread):
        return tuple(check.unread(name, read) for name in NAMES)
    if isinstance(requests, check.Unread):
        return tuple(check.unread(name, requests) for name in NAMES)
    row = next((each for each in overview.rows(read, known.now) if each.name == node), None)
    of_node = overview.gather(read).get(node, overview.Known())
    one = _Node(node, _newest(node, requests.documents), requests, of_node, row)
    told: list[check.Check] = []
    for name, judge in zip(NAMES, (_created, _approved, _signed, _used), strict=True):
        if told and told[-1].verdict is not _OK:
            # 5. what comes after
            behind = (
                f"not asked, since it is not {told[-1].name}" if told[-1].reason != check.UNKNOWN else told[-1].sentence
            )
            told.append(check.Check(name, check.Verdict.UNKNOWN, behind, check.UNKNOWN))
        else:
            told.append(judge(name, one))
    return tuple(told)


def _newest(node: str, documents: Sequence[objects.Document]) -> objects.Document | None:
    """The newest request for the client certificate of this node."""
    own = [each for each in documents if is_for(node, each)]
    return max(own, key=lambda each: jsonpath.text(each, "metadata", "creationTimestamp"), default=None)


def is_for(node: str, document: objects.Document) -> bool:
    """Whether a request is for the client certificate of this node."""
    if jsonpath.text(document, "spec", "signerName") != signer_names.KUBELET_CLIENT:
        return False
    try:
        return kubelet.read(document).node_name == node
    except errors.Refused:
        return False


def _created(name: str, one: _Node) -> check.Check:
    # 1. somebody asked
    if one.request is not None:
        return check.Check(name, _OK, f"{jsonpath.text(one.request, 'spec', 'username')} asked by {one.title}")
    if one.known.issued:
        newest = max(one.known.issued, key=lambda entry: entry.issued_at)
        return check.Check(name, _OK, f"{newest.requester} asked by {newest.request}")
    if one.known.node is not None:
        return check.Check(name, _OK, "its Node is there; another signer gave it its certificate")
    said = f"nobody has asked for a certificate of {one.name}, or the request was deleted"
    hint = "on the machine: handfast join; it says why it does not get as far as asking"
    return check.Check(name, _FAILED, said, "NoRequest", hint)


def _approved(name: str, one: _Node) -> check.Check:
    # 2. why it waits
    denied = one.condition(signing_requests.DENIED)
    if denied is not None:
        hint = "a denial is final: have the machine ask again, under another key"
        return check.Check(name, _FAILED, f"{one.title} was denied: {denied}", "Denied", hint)
    approved = one.condition(signing_requests.APPROVED)
    if approved is not None:
        return check.Check(name, _OK, f"{one.title}: {approved}")
    if one.request is not None and not jsonpath.text(one.request, "status", "certificate"):
        why = one.requests.explanations.get(one.title)
        said = f"{one.title} waits: {'nobody has decided' if why is None else why.sentence}"
        hint = f"handfast csr explain {shlex.quote(one.title)}" if why is None else why.remedy
        return check.Check(name, _FAILED, said, "NotApproved", hint)
    by = overview.came_by(one.known.issued)
    return check.Check(name, _OK, f"it came by {by}" if by else "it has its certificate")


def _signed(name: str, one: _Node) -> check.Check:
    # 3. a certificate
    failed = one.condition(signing_requests.FAILED)
    if failed is not None:
        hint = "a failure is final: have the machine ask again"
        return check.Check(name, _FAILED, f"{one.title} could not be signed: {failed}", "SigningFailed", hint)
    if one.request is not None and not jsonpath.text(one.request, "status", "certificate"):
        return check.Check(name, _FAILED, f"{one.title} is approved, and has no certificate", "NotSigned", _SIGNER)
    certificate = None if one.row is None else one.row.certificate
    if certificate is None:
        return check.Check(name, _OK, "the ledger has no certificate of it: another signer gave it")
    end = objects.timestamp(certificate.not_after)
    return check.Check(name, _OK, f"serial number {certificate.serial}, until {end}")


def _used(name: str, one: _Node) -> check.Check:
    # 4. registered, seen, in force
    row = one.row
    if row is None:
        said = "it has a certificate, and has not registered"
        return check.Check(name, _FAILED, said, "NodeSilent", "on the machine: handfast node run")
    if row.state is overview.State.REVOKED:
        return check.Check(name, _FAILED, row.problem, "Revoked", row.next_step)
    if row.state in overview.CALM:
        seen = "" if row.seen is None else f", seen at {objects.timestamp(row.seen)}"
        return check.Check(name, _OK, f"it has registered{seen}")
    reasons = {overview.State.EXPIRED: "CertificateExpired", overview.State.LATE: "RenewalLate"}
    return check.Check(name, _FAILED, row.problem, reasons.get(row.state, "NodeSilent"), row.next_step)
