# SPDX-License-Identifier: Apache-2.0
"""May a bootstrap token be used from here, and for this certificate request? It gives a verdict and writes nothing.

`from_here` is asked at every request with the token (check 4), `decide` when a certificate is asked for with it (all):

 1. The caller is `system:bootstrap:<id>`, with an id of the form of one; others are not judged here. Whoever
    asks here sees to it that the caller is known by such a token, and not by a certificate or by impersonation: those
    use nothing up.
 2. That token's Secret is still there, still one of a token, not being deleted, and has not expired.
 3. Its limits, and the list of its uses, can be read.
 4. The address is within the token's `allowed-cidrs`, where it has any. A caller without a known address is in no network.
 5. The request can be read and proves possession of its key. Where neither uses nor nodes are limited, one that cannot is
    let go: whoever signs will not read it either.
 6. The request's common name is `system:node:<name>`, and the name matches one of `allowed-nodes`, where there are any.
 7. The same key asked for the same node before: yes, and nothing is written. A reply that was lost strands nobody.
 8. Fewer than `max-uses` uses have been written down, where that is limited.
 9. Then the use has to be written down, on the very state of the Secret that was judged, before the request is stored.

Every request counts, whatever its signer: it is the key that is let in. The same key asking for another node is another
use, so that one key cannot have the names of all nodes.

| who | holding | tries | stopped by | shown in tests/unit/rules/tokens/test_use.py |
|---|---|---|---|---|
| a second machine | a token for one use | join after the first | 8 | test_a_second_key_is_refused |
| a second machine | … and the first one's request, from the list | pass for it | 5: it lacks the key | test_a_request_that_proves_no_key_is_refused |
| a machine | a token for its own name | ask for another node's name | 6 | test_another_nodes_name_is_refused |
| a machine | a token for one use | ask for many names with one key | 8 | test_another_name_is_another_use |
| a machine | a token for nodes | ask for a user's certificate | 6 | test_what_is_no_nodes_name_is_refused |
| a thief | a token, in another network | use it there | 4 | test_from_elsewhere |
| a thief | a token, and a server that asks for reviews | have it vouched for | 4: a caller without a known address | test_from_elsewhere |
| a holder | a token without limits | fill the Secret with uses | the list is bounded | test_a_flood_of_uses_is_bounded |
| a holder | names as long as a request may be | … | only names that nodes can have | test_a_name_no_node_can_have_is_written_down_as_a_digest |
| who writes Secrets | a Secret of another type under a token's name | have uses written on it | 2 | test_what_is_no_token_any_more_is_refused |
| a holder | a token that expires in this moment | be let in once more | 2 | test_an_expired_token_is_refused |
| who writes token Secrets | a limit that nobody can read | have it count as none | 3 | test_what_cannot_be_read_lets_nobody_in |
"""

from __future__ import annotations

import datetime
import functools
import hashlib
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import token_limits, token_secrets, tokens
from handfast.pki import pins, requests
from handfast.rules import decision, networks, user_names
from handfast.rules.certificates import admission

RULE: Final = "TokenLimits"
NOT_FROM_HERE: Final = "TokenNotFromHere"
NOT_FOR_THIS_NODE: Final = "TokenNotForThisNode"
USED_UP: Final = "TokenUsedUp"
GONE: Final = "TokenGone"
EXPIRED: Final = "TokenExpired"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A token is used to ask for a certificate: who asks for what, and the token's Secret as it is now (None: there is none)."""

    user: str
    source: str
    request: objects.Document
    secret: objects.Document | None
    now: datetime.datetime
    # What the Secret says of limits and uses, where that has been read; with uses that are about to be written.
    record: token_limits.Record | None = None
    # … and of the token itself.
    standing: Standing | None = None


class Standing(msgspec.Struct, frozen=True):
    """What a Secret says of its token, whenever it is asked: why it is none any more (empty: it is one), and its end."""

    over: str
    until: datetime.datetime | None = None


class Reserve(msgspec.Struct, frozen=True):
    """Yes, once this use is written down."""

    use: token_limits.Use


_OTHER_USER = decision.NotMine("OtherUser", "the caller is no bootstrap token", RULE)
_UNREADABLE = decision.NotMine(
    "Unreadable", "the request cannot be read, and nothing that it could ask is limited", RULE
)
_KNOWN = decision.Approve("KnownKey", "this key has asked for this node before", RULE)
_HERE = decision.Approve("FromHere", "the token is accepted from this address", RULE)


def token_id(user: str) -> str | None:
    """The id of the token that a user name stands for; None: of none."""
    identifier = user.removeprefix(tokens.USER_PREFIX)
    return identifier if identifier != user and token_secrets.is_meant(tokens.secret_name(identifier)) else None


def sources(secret: object) -> networks.Networks | None:
    """From where a token is accepted, None: from anywhere; errors.Refused if that cannot be read."""
    return _networks(token_limits.cidrs(secret))


def from_here(allowed: networks.Networks, address: str) -> decision.Approve | decision.Deny:
    """Whether a token is accepted from this address (4)."""
    verdict = allowed.holds(address)
    if isinstance(verdict, decision.Deny):
        return decision.Deny(NOT_FROM_HERE, verdict.sentence, RULE)
    return _HERE


def decide(attempt: Attempt) -> decision.Decision | Reserve:
    """All checks, in order."""
    # 1. a bootstrap token
    token = token_id(attempt.user)
    if token is None:
        return _OTHER_USER
    # 2. whose Secret is still there, and has not expired
    if attempt.secret is None:
        return _gone(token, "was deleted")
    ended = _ended(token, attempt.standing or standing(attempt.secret), attempt.now)
    if ended is not None:
        return ended
    # 3. with limits that can be read
    try:
        record = attempt.record or token_limits.record(attempt.secret)
    except errors.Refused as refused:
        sentence = f"the limits of bootstrap token {token} cannot be read: {refused.message}; correct or delete them"
        return decision.Deny(refused.reason, sentence, RULE)
    # 4. from an address that is allowed
    allowed = _networks(record.limits.cidrs)
    here = _HERE if allowed is None else from_here(allowed, attempt.source)
    return here if isinstance(here, decision.Deny) else _request(attempt, token, record)


def standing(secret: objects.Document) -> Standing:
    """Of check 2 all that does not depend on the time, for whoever asks again of the same Secret."""
    fault = token_secrets.fault(secret)
    if fault is not None:
        return Standing(f"is no token any more ({fault.sentence})")
    token = tokens.read(secret)
    return Standing("is being deleted" if token.deleting else "", tokens.parse_expiration(token.expiration))


def _ended(token: str, standing: Standing, now: datetime.datetime) -> decision.Deny | None:
    # 2. still a token, and not expired
    if standing.over:
        return _gone(token, standing.over)
    if standing.until is not None and standing.until <= now:
        return decision.Deny(EXPIRED, f"bootstrap token {token} has expired; ask for another one", RULE)
    return None


def _gone(token: str, what: str) -> decision.Deny:
    return decision.Deny(GONE, f"bootstrap token {token} {what}; ask for another one", RULE)


def _request(attempt: Attempt, token: str, record: token_limits.Record) -> decision.Decision | Reserve:
    limits = record.limits
    # 5. a request that can be read
    try:
        request = admission.parse(attempt.request)
    except errors.Refused as refused:
        if limits.max_uses is None and not limits.nodes:
            return _UNREADABLE
        sentence = f"bootstrap token {token} is limited, and the request cannot be read: {refused.message}"
        return decision.Deny(refused.reason, sentence, RULE)
    # 6. for a node that is allowed
    name = _node(request)
    if limits.nodes and not any(token_limits.matches(pattern, name) for pattern in limits.nodes):
        return _not_for_this_node(token, limits.nodes, request.subject.common_name)
    # 7. the same key for the same node again
    key = str(pins.of_public_key(request.public_key_spki))
    counted = _asked_for(request)
    if record.lists(key, counted):
        return _KNOWN
    # 8. a use is left
    if limits.max_uses is not None and record.count >= limits.max_uses:
        return _used_up(token, limits.max_uses)
    # 9. to be written down first
    return Reserve(token_limits.Use(time=attempt.now, node=counted, key=key, source=attempt.source))


@functools.lru_cache(maxsize=1024)
def _networks(cidrs: tuple[token_limits.Network, ...]) -> networks.Networks | None:
    return networks.Networks(",".join(str(network) for network in cidrs), cidrs) if cidrs else None


def _node(request: requests.Request) -> str:
    """The node that a request names; empty if none, or one that no node can have."""
    user = request.subject.common_name
    name = user.removeprefix(user_names.NODE_PREFIX)
    return name if user != name and objects.dns_subdomain(name) is None else ""


def _asked_for(request: requests.Request) -> str:
    """What a use is counted by besides the key: the node, else a digest of whatever name was asked for."""
    return _node(request) or "sha256:" + hashlib.sha256(request.subject.common_name.encode()).hexdigest()[:32]


def _not_for_this_node(token: str, nodes: tuple[str, ...], common_name: str) -> decision.Deny:
    return decision.Deny(
        NOT_FOR_THIS_NODE,
        f"bootstrap token {token} is for {_shown(','.join(nodes))}, and the request asks for {_shown(common_name)}: "
        "give the machine a name that the token allows, or ask for a token made with --node and its name",
        RULE,
    )


def _used_up(token: str, limit: int) -> decision.Deny:
    uses = "use" if limit == 1 else "uses"
    return decision.Deny(
        USED_UP,
        f"bootstrap token {token} was made for {limit} {uses}, and none is left: ask for another token; if this was the "
        f"first machine to use it, tell who made it: `handfast token explain {token}` shows who has",
        RULE,
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= 256 else f"{text[:256]}…")
