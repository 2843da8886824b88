# SPDX-License-Identifier: Apache-2.0
"""CAs of bootstrap credentials on a copy of the store. The names of the table in `apiserver/access/bootstrap_cas.py` are here."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, cast

import pytest

from handfast import errors
from handfast.apiserver.access import bootstrap_cas
from handfast.apiserver.state import envelope, items
from handfast.apiserver.state import replica as replica_module
from handfast.pki import bundles, certificates
from handfast.rules import client_ca_bundle
from handfast.rules.machines import bootstrapper, client_ca_sources, credential_end
from handfast.store import protocol
from tests.unit.pki.making import SERVER, Made, ca, leaf

SIGNER, OTHER, ROOT = ca(bootstrapper.SIGNER), ca(bootstrapper.SIGNER), ca("root")
CONFIG, MANAGED = client_ca_sources.BOOTSTRAP
BUNDLE = (client_ca_bundle.NAMESPACE, client_ca_bundle.NAME)


def text(*made: Made) -> str:
    return "".join(one.pem.decode() for one in made)


class Server:
    """A copy of the store, and what it has the server trust and remember."""

    def __init__(self, replica: replica_module.Replica | None = None) -> None:
        self.copy = replica or replica_module.Replica(cast("protocol.Store", None), envelope.Envelopes(None, ()))
        self.version = 100
        self.trusted: list[frozenset[bytes]] = []
        self.remembered: set[bytes] = set()
        self.unusable: set[bytes] = set()
        self.cas = bootstrap_cas.BootstrapCAs(self.copy, self._trust, self._remember)
        self.until: dict[str, datetime.datetime] = {}

    def _trust(self, bundle: bundles.TrustBundle, until: Mapping[str, datetime.datetime]) -> None:
        self.trusted.append(frozenset(bundle.ders))
        self.until = dict(until)

    def _remember(self, bundle: bundles.TrustBundle) -> None:
        if self.unusable & set(bundle.ders):
            raise errors.Refused("certificate 1: it cannot be used for TLS", reason="Malformed")
        self.remembered |= set(bundle.ders)

    def start(self) -> Server:
        self.cas.load()
        return self

    def put(self, place: tuple[str, str], data: dict[str, str] | None, **metadata: Any) -> None:
        """Have a ConfigMap say this; None: it is gone."""
        self.version += 1
        item = None
        if data is not None:
            meta = {"namespace": place[0], "name": place[1], **metadata}
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
            item = items.Item(*place, self.version, envelope.encode_document(document))
        self.copy.collection("core/configmaps/").apply(*place, item, self.version)

    def list(self, *made: Made) -> None:
        """What the controller writes."""
        scoped = {client_ca_bundle.SCOPED_KEY: text(*made)} if made else {}
        self.put(BUNDLE, {client_ca_bundle.KEY: text(ROOT), **scoped})

    def source(self, *made: Made, place: tuple[str, str] = CONFIG, **metadata: Any) -> None:
        self.put(place, {"ca-bundle.crt": text(*made)}, **metadata)

    @property
    def counting(self) -> set[bytes]:
        return set(self.cas.bundle.ders)


def test_both_must_hold_it() -> None:
    server = Server().start()
    assert server.trusted == []
    server.source(SIGNER)
    assert server.trusted == [], "nobody listed it"
    server.list(SIGNER, OTHER)
    assert server.counting == {SIGNER.der}, "nobody holds the other"
    assert server.trusted == [{SIGNER.der}]
    assert server.remembered == {SIGNER.der, OTHER.der}, "all of them pass the handshake"
    server.list()
    assert server.counting == set()


def test_a_deleted_source_ends_it_at_once() -> None:
    server = Server().start()
    server.source(SIGNER, OTHER)
    server.list(SIGNER, OTHER)
    server.source(OTHER)
    assert server.counting == {OTHER.der}
    server.put(CONFIG, None)
    assert server.trusted[-1] == frozenset()
    # Made anew, it counts again, as the seed has it.
    server.source(SIGNER)
    assert server.counting == {SIGNER.der}


def test_each_of_the_two_places_holds_it() -> None:
    server = Server().start()
    server.source(SIGNER)
    server.source(SIGNER, place=MANAGED)
    server.list(SIGNER)
    server.put(CONFIG, None)
    assert server.counting == {SIGNER.der}
    server.put(MANAGED, None)
    assert server.counting == set()


def test_a_finalizer_keeps_nothing_alive() -> None:
    server = Server().start()
    server.source(SIGNER)
    server.list(SIGNER)
    server.source(SIGNER, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["example.com/keep"])
    assert server.counting == set()


def test_other_namespaces_do_not_count() -> None:
    server = Server().start()
    server.list(SIGNER)
    server.source(SIGNER, place=("default", CONFIG[1]))
    server.source(SIGNER, place=("openshift-config", "another"))
    server.put(("default", client_ca_bundle.NAME), {client_ca_bundle.SCOPED_KEY: text(OTHER)})
    assert server.trusted == []


def test_a_restart_does_not_bring_it_back() -> None:
    server = Server().start()
    server.source(SIGNER)
    server.list(SIGNER)
    server.put(CONFIG, None)
    again = Server(server.copy).start()
    assert (again.trusted, again.counting) == ([], set())
    assert again.remembered == {SIGNER.der}
    # And what is there counts from the start.
    server.source(SIGNER, place=MANAGED)
    assert Server(server.copy).start().counting == {SIGNER.der}


def test_what_cannot_be_read_does_not_count_and_is_told() -> None:
    server = Server().start()
    server.source(SIGNER)
    server.list(SIGNER)
    for broken in ("broken", text(SIGNER) + leaf(ROOT, SERVER).pem.decode()):
        server.put(BUNDLE, {client_ca_bundle.SCOPED_KEY: broken})
        assert server.counting == set()
        assert str(server.cas.trouble).startswith(
            "ConfigMap kube-system/extension-apiserver-authentication, handfast-bootstrap-ca-file: "
        )
    server.list(SIGNER)
    assert (server.counting, server.cas.trouble) == ({SIGNER.der}, None)
    server.unusable.add(OTHER.der)
    server.list(SIGNER, OTHER)
    assert server.counting == set()
    assert "cannot be used for TLS" in str(server.cas.trouble)
    server.put(BUNDLE, None)
    assert server.cas.trouble is None


def test_another_name_does_not_count() -> None:
    server, pretender = Server().start(), ca("root")
    server.source(SIGNER, pretender)
    server.list(SIGNER, pretender)
    assert server.counting == {SIGNER.der}
    assert server.remembered == {SIGNER.der}, "it never gets near a handshake"
    assert "has the common name kubelet-bootstrap-kubeconfig-signer" in str(server.cas.trouble)


def test_labels_cost_no_parsing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server().start()
    server.source(SIGNER)
    monkeypatch.setattr(client_ca_sources, "read", lambda _: pytest.fail("nothing changed"))
    server.source(SIGNER, labels={"a": "b"})


def test_the_same_is_no_news() -> None:
    server = Server().start()
    server.source(SIGNER)
    server.list(SIGNER)
    server.source(SIGNER, labels={"a": "b"})
    server.list(SIGNER)
    assert len(server.trusted) == 1


def test_an_end_is_told_with_the_cas() -> None:
    server = Server().start()
    end = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
    server.list(SIGNER, OTHER)
    ending = {"ca-bundle.crt": text(SIGNER), credential_end.KEY: "2026-01-31T12:00:00Z"}
    server.put(CONFIG, ending)
    server.source(OTHER, place=MANAGED)
    fingerprint = certificates.fingerprint(SIGNER.der)
    assert (server.counting, server.until) == ({SIGNER.der, OTHER.der}, {fingerprint: end})
    # Put off, and then for ever: the CAs are the same, and it is news all the same.
    server.put(CONFIG, {**ending, credential_end.KEY: "2026-01-31T13:00:00Z"})
    assert server.until == {fingerprint: end + datetime.timedelta(hours=1)}
    server.source(SIGNER, OTHER, place=MANAGED)
    assert server.until == {}


def test_an_end_that_cannot_be_read_is_over() -> None:
    server = Server().start()
    server.list(SIGNER)
    server.put(CONFIG, {"ca-bundle.crt": text(SIGNER), credential_end.KEY: "later"})
    assert server.until == {certificates.fingerprint(SIGNER.der): credential_end.LONG_AGO}
