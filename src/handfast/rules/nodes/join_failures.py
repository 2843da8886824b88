# SPDX-License-Identifier: Apache-2.0
"""Joins that failed, as a list shows them: from Events and from certificate requests, with the smallest change for each. It reads nothing.

1. An Event is one of ours by its reason, and is believed as far as each of its values has the form of one: an id or a kind of credential, an address, a
   reason of letters, a name that a node can have. Nobody else's words are shown: the sentence is made here anew.
2. A request for a node's client certificate, made with a bootstrap credential, has failed if it was denied or could not be signed. One
   that nobody has decided waits, and so does one that was approved and has no certificate.
3. The newest come first.

| who | holding | tries | stopped by | shown in tests/unit/rules/nodes/test_join_failures.py |
|---|---|---|---|---|
| a node, or who may write Events | that right | have words of their own shown, or a terminal obey them | 1 | test_an_event_in_other_words_is_not_shown |
| a holder of a token | a request's message, or a name in it | … | 1, 2: a name that a node can have | test_a_request_that_cannot_be_read_names_no_node |
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects, signer_names, signing_requests
from handfast.api.printing import ages
from handfast.bootstrap import tokens
from handfast.rules import revocation
from handfast.rules.certificates import kubelet
from handfast.rules.tokens import failed_joins, use

COLUMNS: Final = ("LAST", "COUNT", "FROM", "CREDENTIAL", "NODE", "REASON", "SMALLEST CHANGE")
WAITING: Final = "Waiting"
WAITING_FOR_SIGNER: Final = "WaitingForSigner"
_REASON: Final = re.compile(r"[A-Z][A-Za-z]{1,63}")
_MOST: Final = 1 << 30
_CREATE: Final = "handfast token create --print-join-command"
# The credential that a fleet shares -> how another is made.
_SHARED: Final = {
    failed_joins.CERTIFICATE: "handfast machine credentials create --kind master --server SERVER --out DIRECTORY",
    failed_joins.ACCOUNT: "handfast machine credentials create --kind worker --out DIRECTORY",
}
# Who is bound to what, with the accounts.
_BOUND: Final = "kubectl get clusterrolebindings --output wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """One line; what is not known is empty."""

    last: datetime.datetime
    reason: str
    first: datetime.datetime | None = None
    count: int = 1
    source: str = ""
    token: str = ""
    # Where it was no bootstrap token: which credential of a fleet.
    credential: str = ""
    # Whether it was shown that there is such a credential.
    known: bool = True
    node: str = ""
    request: str = ""

    @property
    def change(self) -> str:
        """The smallest change that would let it in."""
        return change(self)


def sentence(row: failed_joins.Row) -> str:
    """What an Event says."""
    shown, token, _, reason = row.key
    known = shown is not failed_joins.Shown.NOTHING
    of_several = token == failed_joins.UNKNOWN
    credential = token if token in failed_joins.SHARED else ""
    named = Failed(
        last=row.last,
        reason=reason,
        source=row.source,
        token="" if credential or (known and of_several) else row.token,
        credential=credential,
        known=known,
        node=row.node,
    )
    who = f"node {row.node}" if row.node else "a machine"
    where = f"from {row.source}" if row.source else "from many addresses"
    return f"{who} {where}, with {_shown(named)}, was refused: {reason}; {named.change}"


def _shown(failed: Failed) -> str:
    """What was shown, in a sentence."""
    if failed.credential:
        return _SENTENCES[failed.credential]
    if not failed.known:
        return "an unknown token"
    return f"token {failed.token}" if failed.token else "several tokens"


_SENTENCES: Final = {
    failed_joins.CERTIFICATE: "a certificate for bootstrapping",
    failed_joins.ACCOUNT: "a token of the account node-bootstrapper",
}


def change(failed: Failed) -> str:
    """A command where one is enough, else what to look at."""
    if failed.request:
        # Whoever asks chooses the name, and somebody will paste the command.
        return f"handfast csr explain {shlex.quote(failed.request)}"
    if failed.reason == use.NOT_FROM_HERE and _is_address(failed.source):
        bits = ipaddress.ip_address(failed.source).max_prefixlen
        return f"{_CREATE} --cidr {failed.source}/{bits}"
    if failed.reason == use.NOT_FOR_THIS_NODE and failed.node:
        return f"{_CREATE} --node {shlex.quote(failed.node)}"
    if failed.reason == use.USED_UP:
        return f"{_CREATE} --max-uses 1"
    if failed.reason == revocation.REVOKED:
        return f"handfast node revoke {shlex.quote(failed.node)} --undo" if failed.node else "kubectl get revocations"
    if failed.credential:
        return _BOUND if failed.reason in _FORBIDDEN else _SHARED[failed.credential]
    if failed.reason in _NEW or not failed.known:
        return _CREATE
    return f"handfast token explain {shlex.quote(failed.token)}" if failed.token else "handfast token list"


# Of a request whose credential was good.
_FORBIDDEN: Final = frozenset({"Forbidden", "NoRuleAllows", "RoleNotFound"})
_NEW: Final = frozenset({"UnknownToken", "TokenBeingDeleted", use.EXPIRED, use.GONE})


def of_events(events: Iterable[objects.Document]) -> Iterator[Failed]:
    """What the Events say that are ours (1)."""
    for event in events:
        failed = _of_event(event)
        if failed is not None:
            yield failed


def _of_event(event: objects.Document) -> Failed | None:
    # 1. each value in its form, or none of it
    notes = jsonpath.mapping(event, "metadata", "annotations")
    text = {key: jsonpath.text(notes, key) for key in (failed_joins.TOKEN, failed_joins.SOURCE, failed_joins.WHY)}
    token, source, reason = text.values()
    credential = jsonpath.text(notes, failed_joins.CREDENTIAL)
    node, last = jsonpath.text(notes, failed_joins.NODE), ages.instant(event.get("lastTimestamp"))
    count = event.get("count")
    if (
        jsonpath.text(event, "reason") != failed_joins.REASON
        or last is None
        or not _REASON.fullmatch(reason)
        or (token and use.token_id(tokens.USER_PREFIX + token) is None)
        or (credential and (token or credential not in failed_joins.SHARED))
        or (source and not _is_address(source))
        or (node and objects.dns_subdomain(node) is not None)
        or not isinstance(count, int)
        or not 0 < count < _MOST
    ):
        return None
    return Failed(
        last=last,
        first=ages.instant(event.get("firstTimestamp")),
        count=count,
        reason=reason,
        source=source,
        token=token,
        credential=credential,
        known=jsonpath.text(event, "involvedObject", "kind") == "Secret" or not token,
        node=node,
    )


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def of_requests(requests: Iterable[objects.Document], bootstrappers: Iterable[str] = ()) -> Iterator[Failed]:
    """The requests that were made with a token, or by one of these users, and led to no certificate (2)."""
    others = frozenset(bootstrappers)
    for document in requests:
        user = jsonpath.text(document, "spec", "username")
        token = use.token_id(user) or ""
        if jsonpath.text(document, "spec", "signerName") != signer_names.KUBELET_CLIENT:
            continue
        state = _state(document) if token or user in others else None
        created = ages.instant(jsonpath.mapping(document, "metadata").get("creationTimestamp"))
        if state is not None and created is not None:
            name = jsonpath.text(document, "metadata", "name")
            yield Failed(last=created, first=created, reason=state, token=token, node=_node(document), request=name)


def _state(document: objects.Document) -> str | None:
    """The word for a request that has led to nothing yet; None: it has its certificate."""
    if jsonpath.text(document, "status", "certificate"):
        return None
    conditions = {jsonpath.text(row, "type") for row in jsonpath.mappings(document, "status", "conditions")}
    for decided in (signing_requests.DENIED, signing_requests.FAILED):
        if decided in conditions:
            return decided
    return WAITING_FOR_SIGNER if signing_requests.APPROVED in conditions else WAITING


def _node(document: objects.Document) -> str:
    try:
        name = kubelet.read(document).node_name
    except errors.Refused:
        return ""
    return name if objects.dns_subdomain(name) is None else ""


def ordered(failures: Iterable[Failed], since: datetime.datetime) -> list[Failed]:
    """Those since an instant, the newest first (3)."""
    return sorted((each for each in failures if each.last >= since), key=lambda each: each.last, reverse=True)


def cells(failed: Failed, now: datetime.datetime) -> tuple[str, ...]:
    """For people."""
    ago = ages.human_duration(max(now - failed.last, datetime.timedelta()))
    token = failed.credential or (failed.token if failed.known else f"unknown ({failed.token})")
    return (
        f"{ago} ago",
        str(failed.count),
        failed.source or "-",
        token or "-",
        failed.node or "-",
        failed.reason,
        failed.change,
    )


def document(failed: Failed) -> dict[str, Any]:
    """For machines; what is not known is null."""
    return {
        "last": objects.timestamp(failed.last),
        "first": None if failed.first is None else objects.timestamp(failed.first),
        "count": failed.count,
        "source": failed.source or None,
        "tokenID": failed.token or None,
        "tokenKnown": failed.known if failed.token else None,
        "credential": failed.credential or ("token" if failed.token else None),
        "node": failed.node or None,
        "reason": failed.reason,
        "request": failed.request or None,
        "smallestChange": failed.change,
    }
