# SPDX-License-Identifier: Apache-2.0
"""Keeps the CAs of bootstrap credentials that count equal to what their ConfigMaps hold at this instant.

1. A CA counts while it is under `handfast-bootstrap-ca-file` in ConfigMap kube-system/extension-apiserver-authentication, where a
   controller or an administrator put it, and one of the bootstrap ConfigMaps holds that very certificate.
2. So whoever deletes such a ConfigMap, or takes the certificate out of it, revokes every credential of that CA in the step in
   which the copy of the store changes, whether a controller runs or not. One that is being deleted holds nothing.
3. What cannot be read, or has another common name than that signer's, does not count, and `trouble` says so. There is no last good state: these CAs let nobody in who
   could repair it.
4. A ConfigMap may say until when its CAs count. `trust` is told, and compares it with the time of each request: it waits for no
   controller and no timer.
5. They pass the TLS handshake from then on, so that their certificates are told 401 later (`remember`).

What they are good for is `authn`'s, who may write these ConfigMaps `admission.client_ca`'s.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/access/test_bootstrap_cas.py |
|---|---|---|---|---|
| a thief of a bootstrap credential | its certificate, after its ConfigMap was deleted | log in while no controller runs | 2 | test_a_deleted_source_ends_it_at_once |
| … | … | log in after a restart | 1 | test_a_restart_does_not_bring_it_back |
| an editor of the namespace | a finalizer on the ConfigMap | keep it alive while it is being deleted | 2 | test_a_finalizer_keeps_nothing_alive |
| a holder of `trust` on the bootstrap ConfigMap | a CA with the name of the administrators' | break the handshakes of those | 3 | test_another_name_does_not_count |
| a writer of a ConfigMap of that name elsewhere | a CA of their own | have it counted | 1 | test_other_namespaces_do_not_count |
| a holder of `trust` on the bootstrap ConfigMap | a CA of their own | have it counted without the controller | 1 | test_both_must_hold_it |
| a thief of a bootstrap credential | its certificate, after the end that was set | log in while no controller runs | 4 | test_an_end_is_told_with_the_cas |
| … | an end that nobody can read | have it count for ever | 4 | test_an_end_that_cannot_be_read_is_over |
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from handfast import errors
from handfast.api import objects
from handfast.apiserver.state import items
from handfast.apiserver.state import replica as replica_module
from handfast.pki import bundles
from handfast.rules import client_ca_bundle
from handfast.rules.machines import client_ca_sources, credential_end

_log = structlog.get_logger("handfast.client_cas")
_PREFIX: Final = "core/configmaps/"
_BUNDLE: Final = (client_ca_bundle.NAMESPACE, client_ca_bundle.NAME)
_NAMES: Final = frozenset({client_ca_bundle.NAME, *(name for _, name in client_ca_sources.BOOTSTRAP)})
NOBODY: Final = bundles.TrustBundle.of(())


class BootstrapCAs:
    """Follows the ConfigMaps; `trust` is told the CAs that count, and until when by SHA-256, `remember` all that may pass the handshake."""

    def __init__(
        self,
        replica: replica_module.Replica,
        trust: Callable[[bundles.TrustBundle, Mapping[str, datetime.datetime]], None],
        remember: Callable[[bundles.TrustBundle], None],
    ) -> None:
        self._replica = replica
        self._trust = trust
        self._remember = remember
        self._listed = NOBODY
        # What each ConfigMap says that counts, and the CAs in that.
        self._said: dict[tuple[str, str], object] = {}
        self._held: dict[tuple[str, str], frozenset[str]] = {}
        self._end: dict[tuple[str, str], datetime.datetime | None] = {}
        self.bundle = NOBODY
        self._ends: dict[str, datetime.datetime] = {}
        # What is wrong with the list of them, until it is mended.
        self.trouble: str | None = None

    def load(self) -> None:
        """Take in what the copy holds, and follow it from now on. No event may have been applied in between."""
        collection = self._replica.collection(_PREFIX)
        for place in (_BUNDLE, *client_ca_sources.BOOTSTRAP):
            self._take(place, collection.get(*place))
        self._settle()
        collection.listen(self, self._note)

    def _note(self, change: items.Change) -> None:
        item = change.after or change.before
        # Cheap test first: there are many ConfigMaps, and some change every second.
        if item is None or item.name not in _NAMES:
            return
        place = (item.namespace, item.name)
        if place == _BUNDLE or place in client_ca_sources.BOOTSTRAP:
            self._take(place, change.after)
            self._settle()

    def _take(self, place: tuple[str, str], item: items.Item | None) -> None:
        if place == _BUNDLE:
            self._listed = self._read(item)
        else:
            # 2. nothing, once it is gone or going
            document = {} if item is None else item.document()
            said = (objects.metadata(document).get("deletionTimestamp"), document.get("data"))
            # Whoever writes labels must not have 512 certificates parsed each time: 0.1 s.
            if self._said.get(place) != said:
                self._said[place] = said
                self._held[place] = client_ca_sources.read(document).fingerprints
                self._end[place] = credential_end.of(document)

    def _read(self, item: items.Item | None) -> bundles.TrustBundle:
        self.trouble = None
        document = {} if item is None else item.document()
        if client_ca_bundle.SCOPED_KEY not in (document.get("data") or {}):
            return NOBODY
        # 3. what cannot be read does not count
        try:
            every = bundles.TrustBundle.of(client_ca_bundle.certificates(document, client_ca_bundle.SCOPED_KEY))
            listed = bundles.TrustBundle.of(each.der for each in every.anchors if client_ca_sources.is_signer(each))
            self._remember(listed)
        except errors.Refused as refused:
            self._complain(f"none of them counts: {refused.message}")
            return NOBODY
        if listed != every:
            self._complain(f"others do not count: {client_ca_sources.MISNAMED_SAID}")
        return listed

    def _complain(self, sentence: str) -> None:
        self.trouble = f"ConfigMap {'/'.join(_BUNDLE)}, {client_ca_bundle.SCOPED_KEY}: {sentence}"
        _log.error("the CAs of bootstrap credentials are not as they should be", error=self.trouble)

    def _settle(self) -> None:
        # 1. in the list, and in a ConfigMap of its own
        held = frozenset[str]().union(*self._held.values())
        bundle = bundles.TrustBundle.of(each.der for each in self._listed.anchors if each.fingerprint in held)
        ends = self._until(bundle)
        if bundle.digest == self.bundle.digest and ends == self._ends:
            return
        self.bundle, self._ends = bundle, ends
        _log.info(
            "the CAs of bootstrap credentials have changed",
            fingerprints=[each.fingerprint for each in bundle.anchors],
            until={one: objects.timestamp(end) for one, end in ends.items()},
        )
        self._trust(bundle, ends)

    def _until(self, bundle: bundles.TrustBundle) -> dict[str, datetime.datetime]:
        # 4. each for as long as one that holds it
        ends = credential_end.by_authority((held, self._end[place]) for place, held in self._held.items())
        return {each.fingerprint: ends[each.fingerprint] for each in bundle.anchors if each.fingerprint in ends}
