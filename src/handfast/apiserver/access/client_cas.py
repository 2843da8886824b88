# SPDX-License-Identifier: Apache-2.0
"""Keeps the server's trust in client certificates equal to the ConfigMap `extension-apiserver-authentication`, live.

1. `client-ca-file` in ConfigMap kube-system/extension-apiserver-authentication is the bundle that client certificates
   are judged by. A change counts in the very step in which it reaches the copy of the store.
2. The ConfigMap is made where it is absent, with the CA of the data directory. If it is deleted, that CA counts again
   at once, and the ConfigMap is made anew. That CA may be replaced by others while the server runs (`begin_with`); a
   ConfigMap that is there is not changed by it.
3. Admission refuses what is no bundle of CA certificates. Where such a thing is stored all the same, a certificate that
   cannot be used is left out, here and in the history, and the others count. Content without a single good one changes
   nothing: the last good bundle stays in force (at start: the CA of the data directory). Until it is mended, `trouble` says
   what is wrong.
4. Every CA that was ever trusted goes on passing the TLS handshake, so that certificates of one that was removed are
   told 401 and not a broken connection. They are kept in ConfigMap kube-system/handfast-client-ca-history, for the next
   start; the oldest are dropped when there are too many. That ConfigMap lets nobody in.
5. A certificate that the TLS library cannot use is as bad as none: it would end the server where it is handed over.
6. A CA that had expired is issued anew for its key, in the CA file. Where the bundle has a certificate of that key, the new one counts,
   too, and is added to the ConfigMap: else nobody could log in any more, to add it. It brings no key that is not believed already.

Who may write the bundle is `admission.client_ca`; what a chain is worth under it is `authn`. CAs that are good for bootstrap
credentials alone have a key of their own in the same ConfigMap: see `bootstrap_cas`.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_client_cas.py |
|---|---|---|---|---|
| a holder of a removed CA's key | fresh certificates of it | log in before some cache ends | 1 | test_a_change_counts_at_once |
| a holder of a removed CA's key | fresh certificates of it | log in after a restart | 1 | test_a_restart_keeps_what_was_chosen |
| a writer to kube-system | the history | add a CA of their own to it | 4: it only passes the handshake | test_the_history_lets_nobody_in |
| who damages the bundle | a broken ConfigMap | lock everybody out | 3 | test_what_cannot_be_read_changes_nothing |
| who damages the history | a broken ConfigMap | stop the server from starting | 4 | test_a_broken_history_is_replaced |
| … | a CA that the library cannot read, among others | … | 3 | test_one_unreadable_ca_of_the_history_is_left_out |
| a holder of a retired first CA's key | one CA in the bundle that nobody can read | have the first count again at the next start | 3 | test_one_unreadable_ca_is_left_out |
| … | the CA file of a server to which the retirement was not copied | be believed by a renewed certificate | 6: by keys of the bundle only | test_a_retired_key_is_not_renewed |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import structlog

from handfast import errors
from handfast.api import jsonpath, objects, resources, status
from handfast.api.defaulting import defaults
from handfast.apiserver import identity
from handfast.apiserver.state import items, storage
from handfast.apiserver.strategy import strategies
from handfast.pki import bundles, certificates, pem
from handfast.rules import access, client_ca_bundle
from handfast.rules.machines import client_ca_sources
from handfast.runtime import clock as clocks
from handfast.runtime import tls
from handfast.store import protocol

_log = structlog.get_logger("handfast.client_cas")
# What the history may hold: far more than any cluster's past, far less than the largest object.
MAX_REMEMBERED: Final = 256
MAX_REMEMBERED_BYTES: Final = 512 << 10
_PREFIX: Final = "core/configmaps/"
_PLACE: Final = f"ConfigMap {client_ca_bundle.NAMESPACE}/{client_ca_bundle.NAME}, {client_ca_bundle.KEY}"
_KEPT: Final = ("namespace", "uid", "creationTimestamp")
_USELESS: Final = "it cannot be used for TLS"
_RETRY_SECONDS: Final = 1.0
_SYSTEM: Final = identity.User("system:apiserver", (access.MASTERS,))


def read(document: Mapping[str, Any]) -> bundles.TrustBundle:
    """The bundle in the ConfigMap; Refused, with the position of what is wrong, if it is not good in every part."""
    return _read(document, client_ca_bundle.KEY)


def read_scoped(document: Mapping[str, Any]) -> bundles.TrustBundle:
    """The CAs of bootstrap credentials in the ConfigMap; Refused as in `read`."""
    return _read(document, client_ca_bundle.SCOPED_KEY)


def read_source(document: Mapping[str, Any]) -> bundles.TrustBundle:
    """The CAs that a source of them holds; Refused as in `read`."""
    return _read(document, client_ca_sources.KEY)


def read_bootstrap(document: Mapping[str, Any]) -> bundles.TrustBundle:
    """The CAs of bootstrap credentials that a source of them holds; Refused as in `read`."""
    bundle = read_source(document)
    if not all(client_ca_sources.is_signer(anchor) for anchor in bundle.anchors):
        raise errors.Refused(client_ca_sources.MISNAMED_SAID, reason=client_ca_sources.MISNAMED)
    return bundle


def _read(document: Mapping[str, Any], key: str) -> bundles.TrustBundle:
    ders = client_ca_bundle.certificates(document, key)
    bundle = bundles.TrustBundle.of(ders)
    _require_all_usable(ders)
    return bundle


def _stored(document: Mapping[str, Any], key: str) -> tuple[bundles.TrustBundle, list[bundles.LeftOut]]:
    """What can be used of a bundle that is stored (3), and what cannot; Refused if nothing can."""
    ders = client_ca_bundle.certificates(document, key)
    bundle, left = bundles.TrustBundle.readable(ders)
    unusable = [
        *left,
        *(
            bundles.LeftOut(ders.index(der) + 1, certificates.fingerprint(der), _USELESS)
            for der in tls.useless(bundle.ders)
        ),
    ]
    gone = {each.fingerprint for each in unusable}
    kept = [anchor.der for anchor in bundle.anchors if anchor.fingerprint not in gone]
    if not kept:
        raise errors.Refused("; ".join(map(str, unusable)), reason="NoBundle")
    return bundles.TrustBundle.of(kept), unusable


def _require_all_usable(ders: Sequence[bytes]) -> None:
    """Refuse what our parser reads and the TLS library does not: it must never get as far as the handshake."""
    # 5. certificates that the TLS library can use
    for der in tls.useless(ders):
        raise errors.Refused(f"certificate {ders.index(der) + 1}: {_USELESS}", reason="Malformed")


class ClientCAs:
    """Follows the ConfigMap; `trust` is told the bundle to judge by, `admit` (PEM) what may pass the handshake."""

    def __init__(
        self,
        store: storage.Storage,
        clock: clocks.Clock,
        initial: bundles.TrustBundle,
        trust: Callable[[bundles.TrustBundle], None],
        admit: Callable[[str], None],
    ) -> None:
        self._storage = store
        self._replica = store.replica
        self._clock = clock
        self._initial = initial
        self._trust = trust
        self._admit = admit
        self._kind = resources.CONFIG_MAPS
        self._ever = initial
        # Fingerprints of what was left out of the history, once that is in the log.
        self._logged: set[str] = set()
        self._work = asyncio.Event()
        self.bundle = initial
        # What is wrong with the ConfigMap, until it is mended.
        self.trouble: str | None = None

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        collection = self._replica.collection(_PREFIX)
        history = collection.get(client_ca_bundle.NAMESPACE, client_ca_bundle.HISTORY)
        if history is not None:
            self._remember(self._recalled(history))
        self._take(collection.get(client_ca_bundle.NAMESPACE, client_ca_bundle.NAME))
        collection.listen(self, self._note)

    def begin_with(self, initial: bundles.TrustBundle) -> None:
        """The CA file says something else now (2)."""
        _require_all_usable(initial.ders)
        self._initial = initial
        self._remember(initial)
        self._take(self._replica.collection(_PREFIX).get(client_ca_bundle.NAMESPACE, client_ca_bundle.NAME))
        self._work.set()

    def remember(self, bundle: bundles.TrustBundle) -> None:
        """Let these pass the handshake from now on (4); Refused, and none of them, if one cannot be used (5)."""
        _require_all_usable(bundle.ders)
        self._remember(bundle)
        self._work.set()

    async def ensure(self) -> None:
        """Make what is absent, and write down what was trusted."""
        try:
            await self._settle()
        except protocol.Mismatch:
            # Another server was faster. With its write in the copy, look again.
            self._work.set()
        except status.StatusError as error:
            # What somebody put into a ConfigMap must not keep the server from starting.
            _log.error("the client CAs could not be written down", error=error.message)

    async def _settle(self) -> None:
        await self._replica.fresh()
        collection = self._replica.collection(_PREFIX)
        # 2. the ConfigMap is made where it is absent
        item = collection.get(client_ca_bundle.NAMESPACE, client_ca_bundle.NAME)
        if item is None:
            await self._write(None, client_ca_bundle.NAME, client_ca_bundle.KEY, self._initial)
        else:
            await self._add_renewed(item)
        # 4. the history, into which other servers write, too
        history = collection.get(client_ca_bundle.NAMESPACE, client_ca_bundle.HISTORY)
        if history is not None:
            self._remember(self._recalled(history))
        wanted = _newest(self._ever)
        if history is None or wanted.to_pem().decode() != _history_text(history):
            await self._write(history, client_ca_bundle.HISTORY, client_ca_bundle.HISTORY_KEY, wanted)

    async def run(self) -> None:
        """Do so again after every change, for ever; the caller runs it as a task."""
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self.ensure()
            except errors.HandfastError as error:
                _log.warning("the client CAs could not be written down", error=error.message)
                await self._clock.sleep(_RETRY_SECONDS)
                self._work.set()

    # --- the bundle

    def _note(self, change: items.Change) -> None:
        item = change.after or change.before
        # Cheap test first: there are many ConfigMaps, and some change every second.
        if item is None or item.name != client_ca_bundle.NAME or item.namespace != client_ca_bundle.NAMESPACE:
            return
        self._take(change.after)
        self._work.set()

    def _take(self, item: items.Item | None) -> None:
        """Judge by the bundle of this ConfigMap from now on."""
        left: Sequence[bundles.LeftOut] = ()
        # 2. deleted: the CA of the data directory counts again
        if item is None:
            bundle = self._initial
        else:
            try:
                bundle, left = _stored(item.document(), client_ca_bundle.KEY)
                # 6. what was renewed counts, too
                bundle = bundle.add(*self._renewed(bundle))
            # 3. without a single good certificate nothing changes
            except errors.Refused as refused:
                self.trouble = f"{_PLACE}: {refused.message}; the last good bundle is in force"
                _log.error("the client CAs cannot be read", error=self.trouble)
                return
        self.trouble = None
        if left:
            self.trouble = f"{_PLACE}: {'; '.join(map(str, left))}; the others are in force"
            _log.error("a client CA cannot be read", error=self.trouble)
        self._remember(bundle)
        if bundle.digest == self.bundle.digest:
            return
        # 1. in the very step in which the change was applied
        self.bundle = bundle
        _log.info("the client CAs have changed", fingerprints=[anchor.fingerprint for anchor in bundle.anchors])
        self._trust(bundle)

    def _renewed(self, bundle: bundles.TrustBundle) -> list[bytes]:
        """The certificates of the CA file that this bundle lacks, and whose key it has (6)."""
        keys = {anchor.public_key.fingerprint for anchor in bundle.anchors}
        return [
            anchor.der
            for anchor in self._initial.anchors
            if anchor.public_key.fingerprint in keys and anchor.der not in bundle.ders
        ]

    async def _add_renewed(self, item: items.Item) -> None:
        """Add them to the ConfigMap, in which everything else stays (6)."""
        document = item.document()
        try:
            bundle, _ = _stored(document, client_ca_bundle.KEY)
        except errors.Refused:
            # It stays as it is, for whoever mends it (3).
            return
        if renewed := self._renewed(bundle):
            text = f"{document['data'][client_ca_bundle.KEY].rstrip()}\n{pem.certificates_to_pem(renewed).decode()}"
            document["data"] = {**document["data"], client_ca_bundle.KEY: text}
            written = await self._storage.replace(self._kind, document, item)
            await self._replica.reached(written.version)

    # --- the history

    def _remember(self, bundle: bundles.TrustBundle) -> None:
        known = set(self._ever.ders)
        new = [der for der in bundle.ders if der not in known]
        if new:
            self._ever = self._ever.add(*new)
            self._admit(bundles.TrustBundle.of(new).to_pem().decode())

    def _recalled(self, item: items.Item) -> bundles.TrustBundle:
        """What can be used of the history. A certificate that cannot be used has one line in the log."""
        try:
            bundle, left = _stored(item.document(), client_ca_bundle.HISTORY_KEY)
        except errors.Refused as refused:
            _log.warning("the history of client CAs cannot be read and is begun anew", error=refused.message)
            return bundles.TrustBundle.of(())
        for each in left:
            if each.fingerprint not in self._logged:
                self._logged.add(each.fingerprint)
                _log.warning(
                    "a CA in the history of client CAs cannot be read and is left out",
                    position=each.number,
                    fingerprint=each.fingerprint,
                    error=each.why,
                )
        return bundle

    async def _write(self, old: items.Item | None, name: str, key: str, bundle: bundles.TrustBundle) -> None:
        text = bundle.to_pem().decode()
        if old is not None:
            # Someone may have made it immutable, or put other things into it: it is the server's own, so nothing stays.
            document = _config_map(name, {key: text})
            document["metadata"] |= {field: old.document()["metadata"].get(field) for field in _KEPT}
            written = await self._storage.replace(self._kind, document, old)
        else:
            document = _config_map(name, {key: text})
            strategies.prepare_create(self._kind, document, client_ca_bundle.NAMESPACE, _SYSTEM, self._clock.now())
            defaults.apply(self._kind, document)
            written = await self._storage.create(self._kind, document)
        await self._replica.reached(written.version)


def _history_text(history: items.Item) -> Any:
    return jsonpath.at(history.document(), "data", client_ca_bundle.HISTORY_KEY)


def _config_map(name: str, data: Mapping[str, str]) -> objects.Document:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(data)}


def _newest(bundle: bundles.TrustBundle) -> bundles.TrustBundle:
    """As many of the newest as the history may hold."""
    # Anchors stand in the order of their notBefore.
    ders = list(bundle.ders[-MAX_REMEMBERED:])
    kept = bundles.TrustBundle.of(ders)
    while len(kept.to_pem()) > MAX_REMEMBERED_BYTES:
        ders = ders[len(ders) // 8 + 1 :]
        kept = bundles.TrustBundle.of(ders)
    return kept
