# SPDX-License-Identifier: Apache-2.0
"""Calls to an etcd of several endpoints, and what their errors mean in the words of the contract.

1. A read is tried at every endpoint, each for a few seconds, before it is given up.
2. A write goes to one endpoint. Only if that never saw it, or says that it has no leader, the next one is asked. Nothing is
   written to an endpoint before it has said that it is of the same cluster.
3. An error that etcd gives before it proposes the write to its members means that nothing was changed. Any other error of a write is
   `StoreUncertain`. A code does not tell them apart, and etcd's own words do: gRPC gives RESOURCE_EXHAUSTED for an answer that is too
   large, too, and then the write was done. There is one exception: the write that reaches etcd's quota is done, and answered with "no space". So after
   `StoreFull` the engine reads the key.
4. Every answer of a quorum read is compared with what was seen before: a lower revision or another cluster means that the
   history is not the one that was served. The store then fails for good, and is opened anew.

5. A key below the entries that is no text is not ours: it is left out, and told once.

It repeats no write that an endpoint may have taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

from handfast.store import protocol
from handfast.store.etcd import place as places
from handfast.wire import etcd_client
from handfast.wire import etcd_messages as messages

READ_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 7.0
_TOO_LARGE: Final = ("request is too large", "larger than max")
# 3. what is said before a write is proposed: by etcd, and by gRPC at etcd's side, which has not read all of the request
_WRITE_TOO_LARGE: Final = ("etcdserver: request is too large", "grpc: received message larger than max")
_NO_SPACE: Final = "etcdserver: mvcc: database space exceeded"
FULL: Final = "etcd is full (alarm NOSPACE): writes are refused, deletes are not"
_MAKE_ROOM: Final = (
    "make room in etcd (delete, compact, then defragment) or raise its --quota-backend-bytes, then clear the alarm with "
    "`etcdctl alarm disarm`"
)
_NOT_NOW: Final = "etcdserver: too many requests"
_ETCD: Final = "etcdserver: "
_LOGIN: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
_LOGIN_WORDS: Final = ("authentication failed", "user name", "auth")
_SHOWN: Final = 200
_log = structlog.get_logger("handfast.store")


class OutOfRange(Exception):
    """The revision of a read lies below etcd's floor, or in the future."""

    def __init__(self, *, compacted: bool) -> None:
        super().__init__()
        self.compacted = compacted


class Session:
    """The calls of one store."""

    def __init__(self, client: etcd_client.Client, place: places.Place, fail: Callable[[str, str], None]) -> None:
        self.client = client
        self.place = place
        self._fail = fail
        # Where there is another endpoint to ask, one that is frozen is left sooner.
        self._haste = 2 if len(client.endpoints) > 1 else 1
        # The endpoint that answered last.
        self.current = 0
        # 4. how far the history had come when it was last looked at, and whose it was
        self.seen = 0
        self._cluster = 0
        self._known: set[int] = set()
        self.is_full = False
        self.refused = 0
        # 5. keys that were left out, as often as they came
        self.foreign = 0

    def entry_key(self, key: bytes) -> str | None:
        """The key of an entry; None for one of the store itself, and for what is none of ours (5)."""
        try:
            return self.place.text(key)
        except UnicodeDecodeError:
            if not self.foreign:
                _log.warning(
                    "there are keys below the store that are no text; they are left out",
                    store=str(self.place),
                    key=repr(key)[:_SHOWN],
                )
            self.foreign += 1
            return None

    def turn(self, index: int) -> None:
        """The next endpoint is asked, if it is still this one's turn."""
        if self.current == index:
            self.current = (index + 1) % len(self.client.endpoints)

    async def read(self, message: Any) -> Any:
        """The answer of the first endpoint that gives one (1)."""
        seen = self.seen
        for remaining in reversed(range(len(self.client.endpoints))):
            index = self.current
            try:
                answer = await self.client.call(index, message, READ_SECONDS / self._haste)
            except etcd_client.Failed as failed:
                if failed.code == "OUT_OF_RANGE":
                    raise OutOfRange(compacted="compacted" in failed.text) from None
                if _is_too_large(failed):
                    raise protocol.TooLarge(failed.message) from None
                if _is_login(failed) or not remaining:
                    raise _unavailable(failed) from None
                self.turn(index)
            else:
                self._compare(answer.header, seen)
                self._known.add(index)
                return answer
        raise protocol.StoreUnavailable(f"{self.place}: no endpoint")

    async def write(self, message: Any) -> Any:
        """The answer to a write (2, 3)."""
        for remaining in reversed(range(len(self.client.endpoints))):
            index = self.current
            try:
                if index not in self._known:
                    await self.require_same(index)
                answer = await self.client.call(index, message, WRITE_SECONDS / self._haste)
            except etcd_client.Failed as failed:
                if _is_login(failed) or not (isinstance(failed, etcd_client.NotSent) or "no leader" in failed.text):
                    raise self._refused(index, failed) from None
                self.turn(index)
                if not remaining:
                    raise _unavailable(failed) from None
            else:
                self.seen = max(self.seen, answer.header.revision)
                return answer
        raise protocol.StoreUnavailable(f"{self.place}: no endpoint")

    def _note_full(self, failed: etcd_client.Failed) -> protocol.StoreFull:
        if not self.is_full:
            _log.error(FULL, reason=protocol.StoreFull.reason, store=str(self.place), hint=_MAKE_ROOM)
        self.is_full = True
        # Whoever calls the API is shown no hint.
        return protocol.StoreFull(f"{failed.message}; deletes are taken, and nothing else: {_MAKE_ROOM}")

    def note_room(self) -> None:
        """A put was taken."""
        if self.is_full:
            _log.info("etcd has room again", store=str(self.place))
        self.is_full = False

    async def require_same(self, index: int) -> Any:
        """The status of an endpoint, which is of the cluster that is used (2)."""
        try:
            status = await self.client.call(index, messages.StatusRequest(), READ_SECONDS / self._haste)
        except etcd_client.Failed as failed:
            # What was to be written was not sent.
            raise etcd_client.NotSent(failed.endpoint, failed.code, failed.text) from None
        # How far this member has come says nothing: it may lag.
        self._compare_cluster(status.header)
        self._known.add(index)
        return status

    def _compare_cluster(self, header: Any) -> None:
        # 4. another history
        if self._cluster and header.cluster_id != self._cluster:
            self._fail("HistoryChanged", f"the etcd is another cluster than before: {header.cluster_id:x}")
        self._cluster = header.cluster_id

    def _compare(self, header: Any, seen: int) -> None:
        self._compare_cluster(header)
        if header.revision < seen:
            self._fail("HistoryChanged", f"the etcd's history went back from revision {seen} to {header.revision}")
        self.seen = max(self.seen, header.revision)

    def _refused(self, index: int, failed: etcd_client.Failed) -> Exception:
        """What the error of a write means (3)."""
        if failed.text.startswith(_NO_SPACE):
            return self._note_full(failed)
        if failed.text.startswith(_WRITE_TOO_LARGE):
            return protocol.TooLarge(
                f"{failed.message}; an entry of {protocol.VALUE_BYTES} bytes must fit",
                hint="raise --max-request-bytes of etcd; its default, 1572864, is enough",
            )
        if failed.code == "OUT_OF_RANGE" and failed.text.startswith(_ETCD):
            return OutOfRange(compacted="compacted" in failed.text)
        is_invalid = failed.code == "INVALID_ARGUMENT" and failed.text.startswith(_ETCD)
        if _is_login(failed) or is_invalid or failed.text.startswith(_NOT_NOW):
            return _unavailable(failed)
        self.turn(index)
        return protocol.StoreUncertain(failed.message)


def range_of(key: bytes, **more: Any) -> Any:
    return messages.RangeRequest(key=key, **more)


def _is_login(failed: etcd_client.Failed) -> bool:
    return failed.code in _LOGIN or (
        failed.code in {"INVALID_ARGUMENT", "FAILED_PRECONDITION"} and any(word in failed.text for word in _LOGIN_WORDS)
    )


def _is_too_large(failed: etcd_client.Failed) -> bool:
    return any(words in failed.text for words in _TOO_LARGE)


def _unavailable(failed: etcd_client.Failed) -> protocol.StoreUnavailable:
    if _is_login(failed):
        return protocol.StoreUnavailable(
            failed.message,
            reason="EtcdLoginRefused",
            hint="check --etcd-username, --etcd-password-file and the user's role",
        )
    if "certificate" in failed.text.lower() or "ssl" in failed.text.lower():
        return protocol.StoreUnavailable(
            failed.message,
            reason="EtcdNotTrusted",
            hint="--etcd-ca-file must be the CA of etcd's certificate, which must name the endpoint's host",
        )
    return protocol.StoreUnavailable(failed.message, hint="see that most members of etcd run and reach one another")
