# SPDX-License-Identifier: Apache-2.0
"""Checks of the CAs: by which the server is believed, and by which it believes others. It reads nothing.

1. The CAs of the kubeconfig and of cluster-info can be read. The one by which the server's certificate is believed is not near its end.
2. The bundle of client CAs is there, every certificate of it can be one, and those that sign are not near their end.
3. The newest client certificate that was issued, and the CA that signs here, are believed by that bundle. Else whoever signs is not who is trusted, and every new node
   is refused.
4. Who signs is told by the newest client certificate, and by the data directory of the server, where it is here; without both, by the caller's own certificate.
"""

from __future__ import annotations

import base64
import datetime
from collections.abc import Iterator, Sequence
from typing import Final

from handfast import errors
from handfast.api import jsonpath, signer_names
from handfast.bootstrap import cluster_info as infos
from handfast.pki import bundles, certificates, chains, pem
from handfast.rules import check, client_ca_bundle
from handfast.rules.diagnoses import ending, facts

_WARNING: Final = check.Verdict.WARNING
_FAILED: Final = check.Verdict.FAILED
_WHERE: Final = f"{client_ca_bundle.NAMESPACE}/{client_ca_bundle.NAME}"
# When, for which request, and the chain.
_Issued = tuple[datetime.datetime, str, list[bytes]]
_CLIENTS: Final = frozenset({signer_names.KUBELET_CLIENT, signer_names.KUBE_APISERVER_CLIENT})


def server_cas(known: facts.Facts) -> check.Check:
    # 1. of the kubeconfig and of cluster-info
    name = "cas"
    by_fingerprint: dict[str, certificates.Certificate] = {}
    for bundle in (known.own_ca, _published(known.cluster_info)):
        if bundle is None:
            continue
        try:
            by_fingerprint |= {each.fingerprint: each for each in bundles.TrustBundle.from_pem(bundle).anchors}
        except errors.Refused as refused:
            return check.Check(name, _FAILED, refused.message, refused.reason, "write the CA into it anew")
    if not by_fingerprint:
        return check.Check(name, check.Verdict.OK, "the server is believed by the roots of this system")
    both = bundles.TrustBundle.of([each.der for each in by_fingerprint.values()])
    return ending.cas(name, "the server", both.anchors, known.now, _keys_of_server(known, both))


def _keys_of_server(known: facts.Facts, bundle: bundles.TrustBundle) -> frozenset[str]:
    shown = known.reach.certificate
    if isinstance(shown, check.Unread):
        return frozenset()
    names = [*shown.sans.dns, *map(str, shown.sans.ip)]
    return _keys([shown.der], bundle, chains.Server(names[0]), known.now) if names else frozenset()


def _keys(
    chain: Sequence[bytes], bundle: bundles.TrustBundle, purpose: chains.Client | chains.Server, now: datetime.datetime
) -> frozenset[str]:
    """The key by which a chain is believed; none, where it is not."""
    try:
        anchor = chains.verify(chain, bundle, purpose, now).anchor
    except errors.Refused:
        return frozenset()
    return frozenset(each.public_key.fingerprint for each in bundle.of_key(anchor))


def client_cas(known: facts.Facts) -> check.Check:
    name, stored = "client-cas", known.client_cas
    if isinstance(stored, check.Unread):
        return check.unread(name, stored)
    # 2. there, and readable
    try:
        ders = client_ca_bundle.certificates(stored or {}, client_ca_bundle.KEY)
    except errors.Refused as refused:
        said = f"ConfigMap {_WHERE}: {refused.message}"
        return check.Check(
            name, _FAILED, said, refused.reason, "start the API server again: it writes its own CAs there"
        )
    bundle, left_out = bundles.TrustBundle.readable(ders)
    newest = max(_issued(known), key=lambda each: each[0], default=None)
    ends = ending.cas(name, "clients", bundle.anchors, known.now, _keys_of_signers(known, bundle, newest))
    if ends.verdict is _FAILED:
        return ends
    # 3. who signs is who is trusted
    if distrusted := _distrusted(known, bundle, newest):
        hint = "have the signer's CA in the bundle (`handfast ca rotate` does), or the signer use a CA of the bundle"
        return check.Check(name, _FAILED, distrusted, "SignerNotTrusted", hint)
    if left_out:
        said = f"{ends.sentence}; {check.several([str(each) for each in left_out])}"
        return check.Check(name, _WARNING, said, "BadAnchor", "take away what is no CA")
    return ends


def _keys_of_signers(known: facts.Facts, bundle: bundles.TrustBundle, newest: _Issued | None) -> frozenset[str]:
    # 4. who signs
    keys = frozenset() if newest is None else _keys(newest[2], bundle, chains.Client(), known.now)
    if known.signer_ca is not None:
        keys |= {known.signer_ca.public_key.fingerprint}
    if not keys and known.credential is not None:
        keys = _keys([known.credential.der], bundle, chains.Client(), known.now)
    return keys


def _distrusted(known: facts.Facts, bundle: bundles.TrustBundle, newest: _Issued | None) -> str:
    signer = known.signer_ca
    if signer is not None and not bundle.of_key(signer.public_key.fingerprint):
        return f"the CA that signs here, {signer.subject}, is not in {_WHERE}"
    if newest is None:
        return ""
    _, title, chain = newest
    try:
        chains.verify(chain, bundle, chains.Client(), known.now)
    except errors.Refused as refused:
        return f"the newest client certificate, of {title}, is not believed by {_WHERE}: {refused.message}"
    return ""


def _issued(known: facts.Facts) -> Iterator[_Issued]:
    """When, for which request, and the chain, of client certificates that are in force."""
    documents = () if isinstance(known.requests, check.Unread) else known.requests.documents
    for document in documents:
        if jsonpath.text(document, "spec", "signerName") not in _CLIENTS:
            continue
        try:
            chain = pem.certificates_from_pem(base64.b64decode(jsonpath.text(document, "status", "certificate")))
            begins, ends = certificates.validity(chain[0])
        except (ValueError, errors.Refused):
            continue
        if begins <= known.now < ends:
            yield begins, jsonpath.text(document, "metadata", "name"), chain


def _published(stored: check.Stored) -> bytes | None:
    """The CA of cluster-info; what cannot be read is told by the check of cluster-info."""
    try:
        return infos.read(jsonpath.text(stored, "data", infos.KUBECONFIG_KEY)).ca
    except errors.Refused:
        return None
