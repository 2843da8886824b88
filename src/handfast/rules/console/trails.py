# SPDX-License-Identifier: Apache-2.0
"""What is behind a certificate, one step each: the request, the rule that said yes, the token, and who made the token. It reads nothing.

1. A step is told also where it leads nowhere any more, with the reason: requests are deleted within a day, tokens when they have expired.
2. Of a rule it is told what it compares, and where to look further. A rule that is not known here is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib import parse as urls

from handfast.api import signer_names
from handfast.rules import user_names
from handfast.rules.ledger import entries
from handfast.rules.mesh import certify, holders


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule by which certificates are issued: what it compares, and the command that tells more."""

    name: str
    sentence: str
    command: str = ""


_EXPLAIN: Final = "handfast csr explain REQUEST"
RULES: Final[Mapping[str, Rule]] = {
    rule.name: rule
    for rule in (
        Rule(
            name=entries.JOIN,
            sentence="A node's first certificate. The request has the form of a kubelet's, whoever asked may create nodeclient requests by a binding, and "
            "no living node has the name.",
            command=_EXPLAIN,
        ),
        Rule(
            name=entries.RENEWAL,
            sentence="A node's next certificate. The node asked with the certificate before, in its own name, and may create selfnodeclient requests by "
            "a binding.",
            command=_EXPLAIN,
        ),
        Rule(
            name=entries.RECOVERY,
            sentence="A node came back after its certificate had expired. It showed that certificate, of the newest key on record, within the time that "
            "the API server allows, while nobody renewed its Lease.",
            command="handfast node recover",
        ),
        Rule(
            name=entries.SERVING,
            sentence="The certificate of a node's own endpoint. The node asked in its own name, for names and addresses that its Node reports and no "
            "other Node does.",
            command=_EXPLAIN,
        ),
        Rule(
            name=entries.MACHINE_JOIN,
            sentence="A machine's first certificate. Exactly one Machine has the node's name, the request came in time with a bootstrap credential that "
            "counts, and no other key was approved for the Machine.",
            command="handfast machine explain MACHINE",
        ),
        Rule(
            name=entries.MACHINE_SERVING,
            sentence="The certificate of a machine's endpoint. Its names and addresses are those of the node's Machine.",
            command="handfast machine explain MACHINE",
        ),
        Rule(
            name=certify.RULE,
            sentence="The certificate of a workload of the mesh, for a day at most. The workload showed the token of its service account, and the name in the "
            "certificate is that account's. The issuer stands behind the rule.",
            command="handfast mesh check",
        ),
        Rule(
            name=certify.OWN,
            sentence="The identity service's own certificate, which it issued to itself.",
            command="handfast mesh check",
        ),
        Rule(
            name=entries.BY_HAND,
            sentence="A person approved the request, or a program that is not Handfast's. What stands behind it is the reason that was written on the approval.",
            command="handfast ledger show SERIAL",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Step:
    """One step: what it is called, what it is, where it leads (empty: nowhere), and why it does not."""

    label: str
    text: str
    path: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known beside the entry: whether its request and its token are still there, and who made the token: by the ledger, or by the token
    itself. None: that may not be read."""

    request_there: bool | None = None
    token_there: bool | None = None
    made_by: str = ""
    # Of a certificate that a node asked for itself: the token with which that node joined. The two above are of this one, then.
    joined_with: str = ""


def trail(entry: entries.Entry, facts: Facts) -> tuple[Step, ...]:
    """The steps behind a certificate, in order."""
    return (_request(entry, facts), _rule(entry), *_credential(entry, facts))


def name_of(rule: str) -> str:
    """The name of a rule, without what an entry adds to it."""
    return rule.partition(": ")[0]


def _quoted(text: str) -> str:
    return urls.quote(text, safe="")


def _request(entry: entries.Entry, facts: Facts) -> Step:
    if not entry.request:
        return Step("request", "none on record")
    if entry.signer == signer_names.MESH_IDENTITY:
        holder = holders.read(entry.request)
        pod = f"{holder.namespace}/{holder.pod}"
        return (
            Step("workload", pod, f"/mesh/workloads?filter={_quoted(pod)}")
            if holder.pod
            else Step("workload", entry.request)
        )
    # 1. also where it is gone
    if facts.request_there is False:
        return Step("request", entry.request, "", "it was deleted since: settled requests are, within a day")
    return Step("request", entry.request, f"/requests/{_quoted(entry.request)}")


def _rule(entry: entries.Entry) -> Step:
    if not entry.rule:
        return Step("rule", "none on record")
    return Step("rule", entry.rule, f"/rules/{_quoted(name_of(entry.rule))}")


def _credential(entry: entries.Entry, facts: Facts) -> tuple[Step, ...]:
    if entry.authenticated_by != entries.BOOTSTRAP_TOKEN:
        word = entry.authenticated_by or "credential"
        text = entry.token_id or "no id on record"
        path = f"/ledger?filter={_quoted(entry.token_id)}" if entry.token_id else ""
        steps = (Step(word, text, path), Step("asked by", entry.requester, _requester(entry.requester)))
        return (*steps, *_token("joined with token", facts.joined_with, facts)) if facts.joined_with else steps
    return _token("token", entry.token_id, facts)


def _token(label: str, token_id: str, facts: Facts) -> tuple[Step, ...]:
    token = Step(label, token_id, f"/tokens/{_quoted(token_id)}")
    if facts.token_there is False:
        token = Step(
            label, token_id, f"/ledger?filter={_quoted(token_id)}", "it is gone; this leads to what else came by it"
        )
    if facts.made_by:
        # 1. where the token is gone, to whatever else came by tokens of the same maker
        where = "/ledger" if facts.token_there is False else "/tokens"
        return (token, Step("made by", facts.made_by, f"{where}?filter={_quoted(facts.made_by)}"))
    why = (
        "it is gone with the token: the entry is older than that note, or of another API server"
        if facts.token_there is False
        else "its Secret does not say: it is older than that note, or may not be read"
    )
    return (token, Step("made by", "not known", "", why))


def _requester(user: str) -> str:
    node = user.removeprefix(user_names.NODE_PREFIX)
    return f"/nodes/{_quoted(node)}" if node != user else f"/ledger?filter={_quoted(user)}"
