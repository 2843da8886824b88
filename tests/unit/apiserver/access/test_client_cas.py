# SPDX-License-Identifier: Apache-2.0
"""The client CAs on a real store. The names of the table in `apiserver/access/client_cas.py` are here."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog
from cryptography import x509
from cryptography.x509.oid import NameOID

from handfast import errors
from handfast.api import kinds
from handfast.apiserver.access import client_cas
from handfast.apiserver.state import envelope, items, storage
from handfast.apiserver.state import replica as replica_module
from handfast.pki import bundles, certificates, pem
from handfast.rules import client_ca_bundle
from handfast.runtime import tasks, tls
from handfast.store import protocol
from handfast.store.sqlite import engine
from tests.unit.pki import odd
from tests.unit.pki.making import DAY, NOW, SERVER, Made, ca, leaf
from tests.world import clock as clocks

CONFIG_MAPS = next(row for row in kinds.builtin() if row.resource == ("", "configmaps"))
FIRST, SECOND, THIRD = ca("first"), ca("second"), ca("third")
SERVING = leaf(FIRST, SERVER)
ODD = odd.ca("cRLDistributionPoints", "x400Address")


# A CA that our parser reads and TLS does not: a name's text carries the tag of a time.
_ODD = ca(x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "odd")])).der
UNUSABLE = b"\x17\x03odd".join(_ODD.rsplit(b"\x0c\x03odd", 1))


def bundle(*made: Made) -> bundles.TrustBundle:
    return bundles.TrustBundle.of(one.der for one in made)


def text(*made: Made) -> str:
    return b"".join(one.pem for one in made).decode()


class FragileStorage(storage.Storage):
    """Storage that fails as told, once for each failure, when it should create or replace."""

    def __init__(self, store: protocol.Store, envelopes: envelope.Envelopes, replica: replica_module.Replica) -> None:
        super().__init__(store, envelopes, replica)
        self.failures: list[Exception] = []

    async def create(self, kind: kinds.Kind, document: dict[str, Any]) -> items.Item:
        self._fail()
        return await super().create(kind, document)

    async def replace(self, kind: kinds.Kind, document: dict[str, Any], old: items.Item) -> items.Item:
        self._fail()
        return await super().replace(kind, document, old)

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop()


class Server:
    """One server's copy of the store, and what it was told to trust."""

    def __init__(self, store: protocol.Store) -> None:
        envelopes = envelope.Envelopes(None, ())
        self.clock = clocks.MovableClock()
        self.copy = replica_module.Replica(store, envelopes)
        self.storage = FragileStorage(store, envelopes, self.copy)
        self.trusted: list[bundles.TrustBundle] = []
        self.admitted: set[bytes] = {FIRST.der}
        self.cas = client_cas.ClientCAs(self.storage, self.clock, bundle(FIRST), self.trusted.append, self._admit)
        self.group = tasks.Group("test")

    def _admit(self, text: str) -> None:
        new = set(bundles.TrustBundle.from_pem(text.encode()).ders)
        assert not new & self.admitted, "only what is new is added"
        self.admitted |= new

    async def start(self) -> Server:
        await self.copy.load()
        self.cas.load()
        self.group.start(self.copy.follow(), name="follow")
        await self.cas.ensure()
        self.group.start(self.cas.run(), name="client-cas")
        return self

    async def stop(self) -> None:
        await self.group.stop(timeout=2.0)

    async def find(self, name: str = client_ca_bundle.NAME) -> items.Item | None:
        return await self.storage.find(CONFIG_MAPS, client_ca_bundle.NAMESPACE, name)

    async def put(self, data: dict[str, str], name: str = client_ca_bundle.NAME, **more: Any) -> None:
        """Write a ConfigMap as the API would, and wait until it is in the copy."""
        metadata = {"name": name, "namespace": client_ca_bundle.NAMESPACE}
        found = await self.find(name)
        document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data, **more}
        if found is None:
            await self.storage.create(CONFIG_MAPS, document)
        else:
            await self.storage.replace(CONFIG_MAPS, document, found)
        await self.copy.fresh()

    async def choose(self, *made: Made) -> None:
        await self.put({client_ca_bundle.KEY: text(*made)})

    async def drop(self, name: str = client_ca_bundle.NAME) -> None:
        found = await self.find(name)
        assert found is not None
        await self.storage.delete(CONFIG_MAPS, found)

    async def history(self) -> set[bytes]:
        found = await self.find(client_ca_bundle.HISTORY)
        if found is None:
            return set()
        data = found.document()["data"][client_ca_bundle.HISTORY_KEY]
        return set(bundles.TrustBundle.from_pem(data.encode()).ders)


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(10):
        while not await holds():
            await asyncio.sleep(0)


async def until_history(server: Server, *made: Made) -> None:
    wanted = {one.der for one in made}

    async def holds() -> bool:
        return await server.history() == wanted

    await until(holds)


@pytest.fixture
async def store(tmp_path: pathlib.Path) -> AsyncIterator[protocol.Store]:
    opened = await engine.open_store(str(tmp_path / "store.db"))
    yield opened
    await opened.close()


@pytest.fixture
async def server(store: protocol.Store) -> AsyncIterator[Server]:
    made = await Server(store).start()
    yield made
    await made.stop()


async def test_another_ca_file_does_not_change_the_config_map(server: Server) -> None:
    server.cas.begin_with(bundle(FIRST, SECOND))
    assert server.admitted == {FIRST.der, SECOND.der}, "it passes the handshake"
    assert server.trusted == [], "and lets nobody in"
    await until_history(server, FIRST, SECOND)
    # Where there is no ConfigMap, it is what counts.
    await server.drop()
    await server.copy.fresh()
    assert server.cas.bundle == bundle(FIRST, SECOND)


async def test_a_ca_that_was_renewed_counts_and_is_added(store: protocol.Store, server: Server) -> None:
    """As after its end: the file has a new certificate of the key that the ConfigMap trusts."""
    await server.choose(FIRST, SECOND)
    renewed = ca("first", key=FIRST.key, not_before=NOW - DAY, not_after=NOW + 3650 * DAY)
    server.cas.begin_with(bundle(renewed))
    assert server.trusted[-1] == bundle(FIRST, SECOND, renewed), "at once"

    async def added() -> bool:
        found = await server.find()
        return found is not None and set(client_cas.read(found.document()).ders) == {
            *(FIRST.der, SECOND.der, renewed.der)
        }

    await until(added)
    await server.stop()
    again = Server(store)
    await again.copy.load()
    again.cas.load()
    assert again.cas.bundle == bundle(FIRST, SECOND, renewed)


async def test_a_retired_key_is_not_renewed(server: Server) -> None:
    """A server whose file has a key that was retired elsewhere brings it back by no certificate."""
    await server.choose(SECOND)
    server.cas.begin_with(bundle(ca("first", key=FIRST.key, not_before=NOW - DAY, not_after=NOW + 3650 * DAY), SECOND))
    await server.cas.ensure()
    assert server.trusted[-1] == bundle(SECOND)
    found = await server.find()
    assert found is not None
    assert client_cas.read(found.document()) == bundle(SECOND)


async def test_without_a_config_map_another_ca_file_counts_at_once(store: protocol.Store) -> None:
    server = Server(store)
    await server.copy.load()
    server.cas.load()
    server.cas.begin_with(bundle(SECOND))
    assert server.trusted == [bundle(SECOND)]


async def test_a_ca_file_that_tls_cannot_use_changes_nothing(server: Server) -> None:
    """The server goes on with what it had: where it was handed over to TLS, such a file would end it."""
    with pytest.raises(errors.Refused, match=r"certificate [12]: it cannot be used for TLS") as caught:
        server.cas.begin_with(bundles.TrustBundle.of([UNUSABLE, SECOND.der]))
    assert caught.value.reason == "Malformed"
    assert server.admitted == {FIRST.der}, "nothing of it passes the handshake"
    await server.drop()
    await server.copy.fresh()
    assert server.cas.bundle == bundle(FIRST), "and where there is no ConfigMap, the file of before counts"


async def test_a_new_cluster_gets_the_config_map(server: Server) -> None:
    found = await server.find()
    assert found is not None
    document = found.document()
    assert document["data"] == {client_ca_bundle.KEY: FIRST.pem.decode()}
    assert document["metadata"]["uid"]
    assert await server.history() == {FIRST.der}
    assert server.trusted == []
    assert server.cas.trouble is None


async def test_a_change_counts_at_once(server: Server) -> None:
    await server.choose(FIRST, SECOND)
    assert [each.digest for each in server.trusted] == [bundle(FIRST, SECOND).digest]
    assert server.admitted == {FIRST.der, SECOND.der}
    await server.choose(SECOND)
    assert server.trusted[-1].digest == bundle(SECOND).digest == server.cas.bundle.digest
    # Its certificates go on passing the handshake, to be told 401.
    assert server.admitted == {FIRST.der, SECOND.der}


async def test_it_counts_before_the_writer_is_answered(server: Server) -> None:
    """Whoever waited for their write, as every handler does, is judged by it."""
    seen: list[str] = []
    server.copy.on_batch.append(lambda: seen.append(server.cas.bundle.digest))
    await server.choose(SECOND)
    assert seen[0] == bundle(SECOND).digest


async def test_the_same_bundle_is_no_change(server: Server) -> None:
    await server.put({client_ca_bundle.KEY: "# said differently\n" + FIRST.pem.decode()})
    await server.choose(FIRST)
    assert server.trusted == []


async def test_other_config_maps_are_not_looked_at(server: Server) -> None:
    await server.put({client_ca_bundle.KEY: text(SECOND)}, name="other")
    document = {"apiVersion": "v1", "kind": "ConfigMap", "data": {client_ca_bundle.KEY: text(SECOND)}}
    elsewhere = {**document, "metadata": {"name": client_ca_bundle.NAME, "namespace": "default"}}
    await server.storage.create(CONFIG_MAPS, elsewhere)
    await server.copy.fresh()
    await server.drop("other")
    await server.copy.fresh()
    assert server.trusted == []


async def test_a_restart_keeps_what_was_chosen(store: protocol.Store, server: Server) -> None:
    await server.choose(SECOND)
    await until_history(server, FIRST, SECOND)
    await server.stop()
    again = await Server(store).start()
    assert again.cas.bundle.digest == bundle(SECOND).digest
    assert [each.digest for each in again.trusted] == [bundle(SECOND).digest]
    await again.choose(THIRD)
    await until_history(again, FIRST, SECOND, THIRD)
    await again.stop()
    third = Server(store)
    await third.copy.load()
    third.cas.load()
    # Before anything was written: what was removed long ago passes the handshake.
    assert third.admitted == {FIRST.der, SECOND.der, THIRD.der}
    assert third.cas.bundle.digest == bundle(THIRD).digest


async def test_a_deleted_config_map_comes_back_with_the_first_ca(server: Server) -> None:
    await server.choose(SECOND)
    await server.drop()
    await server.copy.fresh()
    assert server.trusted[-1].digest == bundle(FIRST).digest

    async def back() -> bool:
        return await server.find() is not None

    await until(back)
    found = await server.find()
    assert found is not None
    assert found.document()["data"] == {client_ca_bundle.KEY: FIRST.pem.decode()}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "there is no key client-ca-file"),
        ({client_ca_bundle.KEY: ""}, "no CERTIFICATE block"),
        ({client_ca_bundle.KEY: "broken"}, "no CERTIFICATE block"),
        ({client_ca_bundle.KEY: SERVING.pem.decode()}, "certificate 1 (SHA-256 "),
        ({client_ca_bundle.KEY: FIRST.pem.decode() + "-----BEGIN CERTIFICATE-----\n"}, "PEM block 2"),
        ({client_ca_bundle.KEY: pem.certificates_to_pem([UNUSABLE]).decode()}, "cannot be used for TLS"),
    ],
)
async def test_what_cannot_be_read_changes_nothing(server: Server, data: dict[str, str], says: str) -> None:
    await server.choose(SECOND)
    await server.put(data)
    assert server.cas.bundle.digest == bundle(SECOND).digest
    assert len(server.trusted) == 1
    trouble = str(server.cas.trouble)
    assert says in trouble
    assert "the last good bundle is in force" in trouble
    await server.choose(SECOND)
    assert server.cas.trouble is None
    assert len(server.trusted) == 1


@pytest.mark.parametrize("bad", [ODD, SERVING], ids=["unreadable", "no CA"])
async def test_one_unreadable_ca_is_left_out(store: protocol.Store, server: Server, bad: Made) -> None:
    await server.choose(bad, SECOND)
    assert server.cas.bundle.digest == bundle(SECOND).digest
    trouble = str(server.cas.trouble)
    assert f"certificate 1 (SHA-256 {certificates.fingerprint(bad.der)}) is left out: " in trouble
    assert trouble.endswith("the others are in force")
    await until_history(server, FIRST, SECOND)
    await server.stop()
    # The same counts after a restart; above all, not the CA of the directory.
    again = await Server(store).start()
    assert again.cas.bundle.digest == bundle(SECOND).digest
    assert again.cas.trouble == trouble
    await again.choose(SECOND)
    assert not again.cas.trouble
    await again.stop()


async def test_one_unreadable_ca_of_the_history_is_left_out(store: protocol.Store, server: Server) -> None:
    await server.put({client_ca_bundle.HISTORY_KEY: text(THIRD, ODD, SECOND)}, client_ca_bundle.HISTORY)
    await server.stop()
    with structlog.testing.capture_logs() as logs:
        again = await Server(store).start()
    assert again.admitted == {FIRST.der, SECOND.der, THIRD.der}
    told = [entry for entry in logs if entry["event"].startswith("a CA in the history")]
    assert {(entry["position"], entry["fingerprint"]) for entry in told} == {(2, certificates.fingerprint(ODD.der))}
    assert "UnsupportedGeneralNameType" in told[0]["error"]
    # Told of once: it is not in there any more.
    await until_history(again, FIRST, SECOND, THIRD)
    await again.stop()
    with structlog.testing.capture_logs() as logs:
        third = await Server(store).start()
    assert not [entry for entry in logs if entry["event"].startswith("a CA in the history")]
    await third.stop()


async def test_what_tls_cannot_use_is_left_out(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "useless", lambda ders: [der for der in ders if der == THIRD.der])
    await server.choose(SECOND, THIRD)
    assert server.cas.bundle.digest == bundle(SECOND).digest
    fingerprint = certificates.fingerprint(THIRD.der)
    assert f"certificate 2 (SHA-256 {fingerprint}) is left out: it cannot be used for TLS" in str(server.cas.trouble)


async def test_unreadable_from_the_start(store: protocol.Store, server: Server) -> None:
    await server.put({client_ca_bundle.KEY: "broken"})
    await server.stop()
    again = await Server(store).start()
    assert again.cas.bundle.digest == bundle(FIRST).digest
    assert again.cas.trouble is not None
    # It is not overwritten: someone may want to see what is in it.
    found = await again.find()
    assert found is not None
    assert found.document()["data"] == {client_ca_bundle.KEY: "broken"}
    await again.stop()


async def test_the_history_lets_nobody_in(store: protocol.Store, server: Server) -> None:
    await server.put({client_ca_bundle.HISTORY_KEY: text(FIRST, THIRD)}, client_ca_bundle.HISTORY)
    assert server.trusted == []
    await server.stop()
    again = await Server(store).start()
    assert again.admitted == {FIRST.der, THIRD.der}
    assert again.trusted == []
    assert again.cas.bundle.digest == bundle(FIRST).digest
    await again.stop()


@pytest.mark.parametrize(
    "data", [{}, {client_ca_bundle.HISTORY_KEY: "broken"}, {client_ca_bundle.HISTORY_KEY: SERVING.pem.decode()}]
)
async def test_a_broken_history_is_replaced(store: protocol.Store, server: Server, data: dict[str, str]) -> None:
    await server.put(data, client_ca_bundle.HISTORY, immutable=True)
    await server.stop()
    again = await Server(store).start()
    assert await again.history() == {FIRST.der}
    found = await again.find(client_ca_bundle.HISTORY)
    assert found is not None
    assert "immutable" not in found.document()
    await again.stop()


async def test_a_deleted_history_comes_back(server: Server) -> None:
    await server.drop(client_ca_bundle.HISTORY)
    await server.choose(SECOND)
    await until_history(server, FIRST, SECOND)


async def test_two_servers(store: protocol.Store, server: Server) -> None:
    other = await Server(store).start()
    await server.choose(FIRST, SECOND)
    await other.copy.fresh()
    assert other.cas.bundle.digest == server.cas.bundle.digest
    await other.choose(THIRD)
    await server.copy.fresh()
    assert server.cas.bundle.digest == bundle(THIRD).digest
    for each in (server, other):
        await until_history(each, FIRST, SECOND, THIRD)
    await other.stop()


async def test_who_comes_second_looks_again(store: protocol.Store) -> None:
    late = Server(store)
    late.storage.failures = [protocol.Mismatch("taken", None)]
    await late.start()
    await until_history(late, FIRST)
    assert late.storage.failures == [], "its first write met another's"
    await late.stop()


async def test_a_store_that_fails_is_tried_again(server: Server) -> None:
    await server.choose(SECOND)
    await until_history(server, FIRST, SECOND)
    found = await server.find()
    assert found is not None
    document = found.document()
    document["data"] = {client_ca_bundle.KEY: text(THIRD)}
    server.storage.failures = [errors.Unavailable("the disk is full")]
    # Past the fragile part: the failure is for who writes the history.
    await storage.Storage.replace(server.storage, CONFIG_MAPS, document, found)
    await server.copy.fresh()
    assert server.trusted[-1].digest == bundle(THIRD).digest

    async def tried() -> bool:
        return not server.storage.failures

    await until(tried)
    assert await server.history() == {FIRST.der, SECOND.der}
    await server.clock.advance(1.0)
    await until_history(server, FIRST, SECOND, THIRD)


async def test_the_history_is_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cas, "MAX_REMEMBERED", 2)
    old = [ca(f"old {days}", not_before=NOW - days * DAY) for days in (9, 8)]
    await server.choose(*old, FIRST)
    await until_history(server, old[1], FIRST)
    assert server.admitted == {FIRST.der, *(one.der for one in old)}


async def test_the_history_is_bounded_in_bytes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_cas, "MAX_REMEMBERED_BYTES", 2 * len(FIRST.pem) + 100)
    old = [ca(f"old{days}", not_before=NOW - days * DAY) for days in (9, 8, 7)]
    await server.choose(*old, FIRST)
    await until_history(server, old[2], FIRST)
