# SPDX-License-Identifier: Apache-2.0
"""Joins that failed: which refusals are one row, how many rows there are, when each is written out, and as which Event.

It refuses nobody and writes nothing: `apiserver.join_failures` asks it. How a failure is listed is in `rules.nodes.join_failures`.

1. A row is one credential, one neighbourhood of addresses (`networks.neighbourhood`) and one reason. Ids that no token has share one
   row for each neighbourhood: a stranger can make up two billion of them. Beside tokens there are two credentials, which all machines of a fleet
   share: the certificate of a bootstrap CA, and the token of the account node-bootstrapper. Each is one word, whoever shows it.
2. Three shelves, by what the caller has shown, have room of their own: who showed the right secret, who named an id that there is (ids are
   public, in cluster-info), and everybody else. A credential has at most `OF_ONE_TOKEN` rows of a shelf. Whoever shows a certificate that no CA of ours
   has signed is everybody else: anybody can write any name into one.
3. What has no room is counted all the same, on a row without an address: one for each reason, shelf and kind of credential.
4. A row that did not happen again for `KEPT` goes.
5. A row is written out when it is new, and then every `PERIOD` at most; at most `AT_ONCE` rows are, those of holders first.
6. Of what a caller sent, a row has: an id in the form of one, an address as the kernel writes it, and a node's name that a node can have.
   The secret half of a token never comes here, and of a certificate nothing does: neither its names nor its issuer's.

| who | holding | tries | stopped by | shown in tests/unit/rules/tokens/test_failed_joins.py |
|---|---|---|---|---|
| a stranger | made-up ids | fill the memory, or the store with Events | 1, 2, 5 | test_made_up_ids_share_one_row_for_each_source |
| a stranger | a /48 of addresses, and ids from cluster-info | … | 2, 3 | test_the_rows_of_strangers_are_bounded_and_none_is_lost |
| a stranger | the same | have the failures of real machines drown | 2, 5 | test_strangers_take_no_room_from_who_holds_a_token |
| a holder of an old token | many addresses | have those of another token drown | 2 | test_one_token_takes_no_room_from_another |
| a holder | a name with line breaks, colours or markup | write to a terminal | 6 | test_only_names_that_a_node_can_have_are_kept |
| a stranger | certificates of their own making, in the name of the account | fill the memory, or the store with Events | 1, 2, 3, 5 | test_made_up_certificates_are_bounded_and_take_no_room_from_holders |
| a stranger | a certificate with markup or colours in its names | write to a terminal | 6 | test_of_a_certificate_nothing_is_kept_but_that_it_was_one |
| a reader of Events | that right | find a secret in one | 6 | test_an_event_has_the_id_and_never_the_secret |
"""

from __future__ import annotations

import datetime
import enum
import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from handfast.api import objects
from handfast.bootstrap import tokens
from handfast.rules import networks

REASON: Final = "JoinRefused"
COMPONENT: Final = "handfast-apiserver"
# The id of tokens that are not there.
UNKNOWN: Final = "unknown"
# 1. what stands for an id where the credential is no bootstrap token: neither has the form of one
CERTIFICATE: Final = "certificate"
ACCOUNT: Final = "account"
SHARED: Final = (CERTIFICATE, ACCOUNT)
KEPT: Final = datetime.timedelta(hours=1)
PERIOD: Final = datetime.timedelta(seconds=30)
OF_ONE_TOKEN: Final = 16
AT_ONCE: Final = 8
_PREFIX: Final = "joins.handfast.dev/"
TOKEN: Final = _PREFIX + "token-id"
CREDENTIAL: Final = _PREFIX + "credential"
SOURCE: Final = _PREFIX + "source"
WHY: Final = _PREFIX + "reason"
NODE: Final = _PREFIX + "node"


class Shown(enum.IntEnum):
    """What the caller has shown: the first is written first (5)."""

    SECRET = 0
    ID = 1
    NOTHING = 2


# 2. so many rows each
ROOM: Final = {Shown.SECRET: 256, Shown.ID: 64, Shown.NOTHING: 64}


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """One refusal. `token` is an id, or one of `SHARED`; `node` is the name that was asked for, where the request was read."""

    shown: Shown
    token: str
    source: str
    reason: str
    node: str = ""


Key = tuple[Shown, str, str, str]


class Row(msgspec.Struct, kw_only=True):
    """Refusals that are told as one; `fresh` of them were not written out yet."""

    key: Key
    token: str
    source: str
    node: str
    first: datetime.datetime
    last: datetime.datetime
    fresh: int = 1
    written: datetime.datetime | None = None

    @property
    def reason(self) -> str:
        return self.key[3]


class Failures:
    """What one server remembers of the last hour."""

    def __init__(self) -> None:
        self._rows: dict[Key, Row] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def note(self, failure: Failure, now: datetime.datetime) -> Row:
        """Count a refusal; the row that it is on."""
        # 1. by credential, neighbourhood and reason
        is_shared = failure.token in SHARED
        token = UNKNOWN if failure.shown is Shown.NOTHING and not is_shared else failure.token
        key = (failure.shown, token, networks.neighbourhood(failure.source), failure.reason)
        source = failure.source
        if key not in self._rows:
            self._forget(now)
            # 3. counted without an address where there is no room
            if not self._has_room(failure.shown, token):
                key, source = (failure.shown, token if is_shared else UNKNOWN, "", failure.reason), ""
        # 6. a name that a node can have
        node = failure.node if failure.node and objects.dns_subdomain(failure.node) is None else ""
        row = self._rows.get(key)
        if row is None:
            row = Row(key=key, token=failure.token, source=source, node=node, first=now, last=now)
            self._rows[key] = row
        else:
            row.token, row.source, row.node, row.last = failure.token, source, node or row.node, now
            row.fresh += 1
        return row

    def due(self, now: datetime.datetime) -> list[Row]:
        """What is to be written out now (5)."""
        waiting = (row for row in self._rows.values() if row.fresh and _is_due(row, now))
        return sorted(waiting, key=lambda row: (row.key[0], row.written or row.first))[:AT_ONCE]

    def unwritten(self) -> bool:
        """Whether some row has not been written out as it is."""
        return any(row.fresh for row in self._rows.values())

    def _has_room(self, shown: Shown, token: str) -> bool:
        # 2. of the shelf, and of the credential
        shelf = [key for key in self._rows if key[0] is shown and key[2]]
        own = sum(key[1] == token for key in shelf)
        return len(shelf) < ROOM[shown] and (token == UNKNOWN or own < OF_ONE_TOKEN)

    def _forget(self, now: datetime.datetime) -> None:
        # 4. an hour after it last happened
        for key in [key for key, row in self._rows.items() if now - row.last >= KEPT]:
            del self._rows[key]


def _is_due(row: Row, now: datetime.datetime) -> bool:
    # Either way: the clock may have been set back.
    return row.written is None or abs(now - row.written) >= PERIOD


def event(row: Row, sentence: str) -> objects.Document:
    """The Event of a row, whose count is what was not written yet."""
    shown, token, place, reason = row.key
    digest = hashlib.sha256(f"{shown.name}\0{token}\0{place}\0{reason}".encode()).hexdigest()[:16]
    if token in SHARED:
        about = f"bootstrap-{token}"
    else:
        about = "unknown-token" if shown is Shown.NOTHING or token == UNKNOWN else tokens.secret_name(token)
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{about}.{digest}",
            "namespace": tokens.NAMESPACE,
            "annotations": dict(_notes(row)),
        },
        "involvedObject": _regarding(about),
        "reason": REASON,
        "message": sentence,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": COMPONENT,
        "firstTimestamp": objects.timestamp(row.first),
        "lastTimestamp": objects.timestamp(row.last),
        "count": row.fresh,
        "type": "Warning",
    }


def _notes(row: Row) -> Iterator[tuple[str, str]]:
    # A row that stands for several tokens names none.
    several = row.key[1] == UNKNOWN and row.key[0] is not Shown.NOTHING
    is_shared = row.key[1] in SHARED
    for name, value in (
        (TOKEN, "" if several or is_shared else row.token),
        (CREDENTIAL, row.key[1] if is_shared else ""),
        (SOURCE, row.source),
        (WHY, row.reason),
        (NODE, row.node),
    ):
        if value:
            yield name, value


def _regarding(about: str) -> dict[str, Any]:
    """The token's Secret; where there is none, the namespace that it would be in."""
    kind, name = ("Secret", about) if about.startswith(tokens.NAME_PREFIX) else ("Namespace", tokens.NAMESPACE)
    return {"apiVersion": "v1", "kind": kind, "name": name, "namespace": tokens.NAMESPACE}


def counted(event: objects.Document, existing: objects.Document) -> objects.Document:
    """The Event, where there is one of its name already: whoever wrote that, only its count and its beginning stay."""
    before = existing.get("count")
    count = before if isinstance(before, int) and 0 < before < 1 << 30 else 0
    first = existing.get("firstTimestamp")
    begun = first if isinstance(first, str) and first else event["firstTimestamp"]
    metadata = {**objects.metadata(existing), "annotations": event["metadata"]["annotations"]}
    return {**event, "metadata": metadata, "count": count + event["count"], "firstTimestamp": begun}
