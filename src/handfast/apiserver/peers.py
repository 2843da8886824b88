# SPDX-License-Identifier: Apache-2.0
"""The API servers that share this store: each keeps a Lease in kube-system, and takes its share of budgets by how many there are.

1. A server has its Lease before it accepts a connection, so that the others have made room by then.
2. Another server counts as soon as its Lease is seen. It counts no more when that has stood unchanged for `DURATION` on our own clock
   (clocks need not agree), or is removed, as a server does that ends.
3. While our own Lease cannot be renewed, nobody is taken to be gone: we would not see them renew theirs, either. When it can be
   again, the time of the others begins anew: they may not have come to it yet.
4. Only a Lease that shows a proof counts: where its server is to be reached, sealed for the name of this Lease with the key that
   all servers of a store have. More than `MOST` servers count as `MOST`.
5. Two servers with the same name (copies of a machine) notice it at the next renewal: one of them takes another name.
6. The endpoints of the Service `kubernetes` are the addresses of all that count. Every server writes them by
   compare-and-swap, again with each renewal, so that a stale list is mended.
7. A Lease of an API server that nobody renewed for an hour is removed.

Requests are counted elsewhere, by `flows` and `serving.gate`. The annotations of the Lease, and what follows from them, are `announcement`'s:
there, too, is who keeps the Lease of a server whose store is its own.

| who                                  | holding      | tries                                    | check | shown in tests/scenarios/test_two_servers.py         |
| ------------------------------------ | ------------ | ---------------------------------------- | ----- | ---------------------------------------------------- |
| whoever may write kube-system Leases | many of them | makes the share of every server small    | 4     | test_a_lease_that_no_server_wrote_is_no_server       |
| …                                    | an address   | becomes an endpoint of `kubernetes`      | 4     | …                                                    |
| …                                    | nonsense     | ends every server that reads it          | 4     | …                                                    |
| …                                    | a true Lease | copies it, or changes its address        | 4     | …                                                    |
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import secrets
import socket
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from handfast import errors
from handfast.api import objects, resources
from handfast.apiserver import announcement, first_objects
from handfast.apiserver.state import envelope, items, storage
from handfast.rules import stored_forms
from handfast.runtime import clock as clocks
from handfast.store import protocol

# Seconds: between two renewals, and without one until a server counts no more.
RENEW: Final = 10.0
DURATION: Final = 30
MOST: Final = 64
NAMESPACE: Final = announcement.NAMESPACE
# Name and label as Kubernetes' own servers have them.
PREFIX: Final = announcement.PREFIX
LABELS: Final = {announcement.LABEL: announcement.ROLE}
ADDRESSES: Final = "handfast.dev/api-addresses"
PORT: Final = "handfast.dev/api-port"
PROOF: Final = "handfast.dev/api-proof"
_PLACE: Final = "handfast/peers/"
_TRIES: Final = 5
_END_SECONDS: Final = 2.0
_log = structlog.get_logger("handfast.peers")


class Peers:
    """This server among those of its store. `on_count` is told how many there are."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clocks.Clock,
        sealer: envelope.Sealer,
        announcer: announcement.Announcer,
        *,
        place: str,
        server: first_objects.Server,
        on_count: Callable[[int], None],
    ) -> None:
        self._storage = store
        self._clock = clock
        self._server = server
        self._on_count = on_count
        self._announcer = announcer
        self._sealer = sealer
        host = socket.gethostname()
        digest = hashlib.sha256(f"{host}\0{place}\0{server.port}".encode()).hexdigest()
        self.name = PREFIX + digest[:26]
        self._holder = f"{self.name}_{secrets.token_hex(8)}"
        self._announced = False
        self._proof_of, self._proof = "", dict[str, str]()
        # The others: where they are, and since when their Lease is that one.
        self._others: dict[str, tuple[first_objects.Server, float]] = {}
        self._leases = store.replica.collection(resources.LEASES.prefix)
        self.count = 1

    def load(self) -> None:
        """Take in the Leases that are there, and follow them."""
        for item in self._leases.snapshot(NAMESPACE):
            self._note(item)
        self._leases.listen(self, self._changed)

    async def begin(self) -> None:
        """Be one of them, before anything is served."""
        # 1. the Lease is there first, unless the store takes no writes
        try:
            await self._announce()
        except protocol.StoreFull as error:
            _log.warning("the Lease of this server is not written", reason=error.reason, error=error.message)
        self._judge()

    async def run(self) -> None:
        """Renew for ever; the caller runs it as a task."""
        failed = False
        while True:
            await self._clock.sleep(RENEW)
            try:
                await self._announce()
                # 3. the others' time begins anew
                if failed:
                    self._others = {name: (known, self._clock.monotonic()) for name, (known, _) in self._others.items()}
                failed = False
                self._judge()
                await self._tidy()
                await self.publish()
            except stored_forms.StoreTooNew:
                # The others write what this server cannot read.
                raise
            except errors.HandfastError as error:
                # 3. nobody is taken to be gone
                failed = True
                _log.warning("the Lease of this server is not renewed", reason=error.reason, error=error.message)

    async def end(self) -> None:
        """Be no more one of them."""
        self._leases.forget(self)
        item = self._leases.get(NAMESPACE, self.name)
        if item is None or _holder(item) != self._holder:
            return
        # Where the store does not answer, the others notice by themselves.
        with contextlib.suppress(errors.HandfastError, TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._storage.delete(resources.LEASES, item)

    async def publish(self) -> None:
        """Have the Service's endpoints be those of all servers."""
        # 6. the addresses of all that count
        servers = {self._server, *(server for server, _ in self._others.values())}
        await first_objects.ensure(self._storage, self._clock, sorted(servers))

    # --- our own

    async def _announce(self) -> None:
        for _ in range(_TRIES):
            item = await self._storage.find(resources.LEASES, NAMESPACE, self.name)
            # 5. somebody else has our name
            if item is not None and self._announced and _holder(item) != self._holder:
                _log.warning("another API server has the name of this one", lease=self.name)
                self.name = PREFIX + secrets.token_hex(13)
                self._note(item)
                item = None
            try:
                await self._write(item)
            except protocol.Mismatch:
                continue
            self._announced = True
            return
        # 1. without it, the others would not make room
        raise errors.Unavailable(f"the Lease {self.name} was changed by others each time", reason="LeaseNotWritten")

    async def _write(self, item: items.Item | None) -> None:
        now = objects.micro_timestamp(self._clock.now())
        # How long it speaks for the stored form (`announcement`): clocks may differ, and a store may be away for a while.
        spec = {"holderIdentity": self._holder, "leaseDurationSeconds": announcement.LEASE_SECONDS, "renewTime": now}
        annotations = await self._announcer.annotations() | self._proven()
        if item is not None:
            document = item.document()
            document["metadata"] |= {"labels": dict(LABELS), "annotations": annotations}
            document["spec"] = spec
            written = await self._storage.replace(resources.LEASES, document, item)
        else:
            document = announcement.new_lease(self.name, spec, self._clock.now())
            document["metadata"]["annotations"] = annotations
            written = await self._storage.create(resources.LEASES, document)
        await self._storage.replica.reached(written.version)
        await self._announcer.decide()

    # --- the others

    def _changed(self, change: items.Change) -> None:
        before, after = change.before, change.after
        if after is not None:
            self._note(after)
        elif before is not None and before.namespace == NAMESPACE:
            self._others.pop(before.name, None)
        self._tell()

    def _note(self, item: items.Item) -> None:
        if item.namespace != NAMESPACE or not item.name.startswith(PREFIX) or item.name == self.name:
            return
        # 4. shows a proof; what was known of a server stays until it is silent for too long
        server = self._shown(item)
        if server is not None:
            self._others[item.name] = (server, self._clock.monotonic())

    def _proven(self) -> dict[str, str]:
        """What the Lease says of where this server is, and the proof of it."""
        if self._proof_of != self.name:
            said = {ADDRESSES: ",".join(self._server.addresses), PORT: str(self._server.port)}
            key, sealed = self._sealer.seal(_text(said), (_PLACE + self.name).encode())
            self._proof = said | {PROOF: f"{key}:{base64.b64encode(sealed).decode()}"}
            self._proof_of = self.name
        return self._proof

    def _shown(self, item: items.Item) -> first_objects.Server | None:
        """Where the server of a Lease is to be reached, if a server wrote that."""
        said = item.document()["metadata"].get("annotations") or {}
        key, _, text = str(said.get(PROOF) or "").partition(":")
        try:
            opened = self._sealer.unseal(key, base64.b64decode(text, validate=True), (_PLACE + item.name).encode())
        except (errors.Refused, ValueError):
            return None
        if opened != _text(said):
            return None
        return first_objects.Server(tuple(filter(None, said[ADDRESSES].split(","))), int(said[PORT]))

    def _judge(self) -> None:
        """Leave out those whose Lease has stood for too long."""
        now = self._clock.monotonic()
        # 2. unchanged for too long, on our own clock
        for name, (_, since) in tuple(self._others.items()):
            if now - since >= DURATION or name == self.name:
                del self._others[name]
        self._tell()

    def _tell(self) -> None:
        # 4. so many and no more
        count = min(MOST, 1 + len(self._others))
        if count != self.count:
            self.count = count
            _log.info("API servers that share the store", count=count)
            self._on_count(count)

    async def _tidy(self) -> None:
        # 7. nobody renewed it
        for item in self._leases.snapshot(NAMESPACE):
            if item.name.startswith(PREFIX) and self._is_forgotten(item):
                with contextlib.suppress(protocol.Mismatch):
                    await self._storage.delete(resources.LEASES, item)

    def _is_forgotten(self, item: items.Item) -> bool:
        if item.name == self.name or item.name in self._others:
            return False
        return announcement.is_forgotten(item.document(), self._clock.now())


def _holder(item: items.Item) -> str:
    return str((item.document().get("spec") or {}).get("holderIdentity") or "")


def _text(said: Mapping[str, str]) -> bytes:
    return f"{said.get(ADDRESSES)} {said.get(PORT)}".encode()
