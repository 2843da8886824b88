# SPDX-License-Identifier: Apache-2.0
"""Decides how a machine may find its cluster, and whether what it found is that cluster.

It fetches nothing and waits for nothing: `client/discovery.py` does, and asks here. What to tell if it fails is in
`diagnosis`.

The method (`choose`). What does not hold is a `Fault`, for which the command line has the words:

 a. The one token stands for the discovery token and for the TLS bootstrap token, where those are not given. Where no TLS
    bootstrap token is given at all, the discovery token is that, too, as with kubeadm.
 b. Exactly one of a discovery token and a discovery document.
 c. A token needs an endpoint, and a pin of the CA or the wish to go without. Pins count, if there are any.
 d. A document is in a file, at an https URL or on stdin (`-`). Pins do not go with it: nothing would be compared with them.
 e. A CA for the document goes with a URL.
 f. There is a TLS bootstrap token. Beside a document it may be that of a bootstrap kubeconfig, which the caller reads.

What was fetched without verified TLS (`read_config_map`, `check`, `require_same`):

 1. It is the ConfigMap `cluster-info`.
 2. It has `kubeconfig`.
 3. It has a signature of the token's id.
 4. The signature is good (`jws.verify`).
 5. The kubeconfig is a ClusterInfo without credentials (`cluster_info.read`).
 6. One of its CA certificates is pinned, where there are pins.
 7. The same `kubeconfig`, octet for octet, comes over TLS that is verified with its CA; with pins, only with the
    certificates that are pinned (`anchors`): somebody with the token could sign a bundle of the real CA and their own.
    The caller makes that fetch.

What a known cluster says of itself later (`adopt`, `common_roots`), over TLS that is verified with what is known:

 8. It has the id that is known.
 9. A bundle that gives up every root that is known at once is refused. The server that is used from then on verifies by a
    root of both bundles, the known one and the new: whoever may write cluster-info and holds no key of the CA cannot
    name their own CA and server in one step. A rotation publishes both CAs before the servers change over.

| who | holding | tries | stopped by | shown in tests/unit/bootstrap/test_discovery.py |
|---|---|---|---|---|
| a man in the middle | nothing | another kubeconfig, its signature kept | 4 | test_a_changed_kubeconfig_is_refused |
| a man in the middle | nothing | takes the signature away | 3 | test_no_signature |
| a man in the middle | an old ConfigMap of the cluster | replays it | 7 | test_the_second_fetch_has_to_be_the_same |
| a man in the middle | the token | signs another CA | 6 | test_another_ca_is_refused |
| a man in the middle | the token | signs the real CA and another | 7: anchors | test_only_pinned_certificates_are_anchors |
| a published document | a reader | brings credentials along | 5 | test_credentials_are_refused |
| another cluster | a root in common | leaves its id out | 8 | test_whoever_leaves_the_id_out_is_not_adopted |
| a writer of cluster-info | a CA of their own | names it instead | 9 | test_no_root_is_left |
| a writer of cluster-info | a CA of their own | names it beside | 9 | test_only_what_both_have_counts |
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec

from handfast import errors
from handfast.bootstrap import cluster_info, diagnosis, endpoints, jws, tokens
from handfast.pki import pem, pins

PATH: Final = f"/api/v1/namespaces/{cluster_info.NAMESPACE}/configmaps/{cluster_info.NAME}"


class Fault(enum.Enum):
    """What may be wrong with an offer as a whole. How a command line spells it is the command's (`cli.join_plan`)."""

    LOGIN_AND_DOCUMENT = "a token and a document were both given, and the token may be meant for logging in"
    TWO_METHODS = "a discovery token and a document were both given"
    NO_METHOD = "neither a token nor a document was given"
    NO_ENDPOINT = "discovery with a token needs the address of an API server"
    NO_PIN = "discovery with a token needs a pin of the CA"
    PIN_BESIDE_DOCUMENT = "a pin of the CA was given beside a document"
    UNSAFE_BESIDE_DOCUMENT = "the wish to go without a pin was given beside a document"
    NO_SOURCE = "the document has no name"
    OTHER_SCHEME = "the document's URL is not an https URL"
    NO_URL = "the document's URL is none, or has credentials in it"
    CA_WITHOUT_URL = "a CA for the document was given, and the document is not at a URL"
    NO_LOGIN = "there is no token to log in with after discovery"


class Unfit(errors.Refused):
    """An offer that does not hold together."""

    reason = "UnfitOffer"

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What somebody offers to find a cluster with, not parsed yet; None: not given."""

    endpoints: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    discovery_token: str | None = field(default=None, repr=False)
    tls_bootstrap_token: str | None = field(default=None, repr=False)
    discovery_file: str | None = None
    pins: tuple[str, ...] = ()
    unsafe_skip_ca_verification: bool = False
    ca_file: str | None = None


class ByToken(msgspec.Struct, frozen=True):
    """Discovery by a signature. No pins: the user wants none."""

    token: tokens.Token
    pins: tuple[pins.Pin, ...]


class ByDocument(msgspec.Struct, frozen=True):
    """Discovery by a document in a file, at an https URL or on stdin; `ca_file` is the CA of the URL."""

    source: str
    ca_file: str | None = None

    @property
    def is_url(self) -> bool:
        return self.source.startswith("https://")


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a join is going to do."""

    endpoints: tuple[endpoints.Endpoint, ...]
    method: ByToken | ByDocument
    tls_token: tokens.Token

    @property
    def signs(self) -> bool:
        """Whether the token to log in with is the one whose signature is checked."""
        return isinstance(self.method, ByToken) and self.method.token == self.tls_token


def choose(offer: Offer) -> Plan:
    """The method, if a to f hold; else a Fault."""
    # a. one token stands for both
    signing = offer.discovery_token if offer.discovery_token is not None else offer.token
    login = offer.tls_bootstrap_token if offer.tls_bootstrap_token is not None else signing
    addresses = tuple(endpoints.parse(text) for text in offer.endpoints)
    method = _method(signing, offer)
    # e. a CA of the document goes with a URL
    if offer.ca_file is not None and not (isinstance(method, ByDocument) and method.is_url):
        raise Unfit(Fault.CA_WITHOUT_URL)
    # f. there is a token to log in with
    if login is None:
        raise Unfit(Fault.NO_LOGIN)
    return Plan(endpoints=addresses, method=method, tls_token=tokens.parse(login))


def _method(signing: str | None, offer: Offer) -> ByToken | ByDocument:
    # b. exactly one method
    if signing is not None and offer.discovery_file is not None:
        raise Unfit(Fault.LOGIN_AND_DOCUMENT if offer.discovery_token is None else Fault.TWO_METHODS)
    if signing is not None:
        return _by_token(signing, offer)
    if offer.discovery_file is not None:
        return _by_document(offer.discovery_file, offer)
    raise Unfit(Fault.NO_METHOD)


def _by_token(text: str, offer: Offer) -> ByToken:
    token = tokens.parse(text)
    # c. an endpoint, and a pin or the wish to go without
    if not offer.endpoints:
        raise Unfit(Fault.NO_ENDPOINT)
    if not offer.pins and not offer.unsafe_skip_ca_verification:
        raise Unfit(Fault.NO_PIN)
    return ByToken(token, tuple(pins.parse(pin) for pin in offer.pins))


def _by_document(source: str, offer: Offer) -> ByDocument:
    # d. a path, an https URL or stdin, and no pins
    if offer.pins:
        raise Unfit(Fault.PIN_BESIDE_DOCUMENT)
    if offer.unsafe_skip_ca_verification:
        raise Unfit(Fault.UNSAFE_BESIDE_DOCUMENT)
    if not source:
        raise Unfit(Fault.NO_SOURCE)
    scheme, separator, rest = source.partition("://")
    if not separator:
        return ByDocument(source, offer.ca_file)
    if scheme.lower() != "https":
        raise Unfit(Fault.OTHER_SCHEME)
    if not _is_url(source):
        raise Unfit(Fault.NO_URL)
    return ByDocument(f"https://{rest}", offer.ca_file)


def _is_url(source: str) -> bool:
    site = re.match(r"https://[^/?#@]+(?=[/?#]|$)", source, re.IGNORECASE)
    if site is None or re.fullmatch(r"[!-~]+", source) is None:
        return False
    try:
        endpoints.of_server(site[0])
    except errors.Refused:
        return False
    return True


@dataclass(frozen=True, slots=True)
class Published:
    """The data of the ConfigMap, not believed yet."""

    kubeconfig: str
    signatures: Mapping[str, str]


def read_config_map(body: bytes, where: str) -> Published:
    """What a ConfigMap says, if 1 and 2 hold."""
    # 1. it is the ConfigMap
    document = diagnosis.document(body)
    metadata, data = document.get("metadata"), document.get("data")
    named = isinstance(metadata, dict) and metadata.get("name") == cluster_info.NAME
    if document.get("kind") != "ConfigMap" or not named:
        raise diagnosis.not_an_api_server(where, "the answer is not the ConfigMap cluster-info")
    values = {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    # 2. it has a kubeconfig
    kubeconfig = values.get(cluster_info.KUBECONFIG_KEY, "")
    if not kubeconfig:
        raise errors.Unavailable(
            f"there is no {cluster_info.KUBECONFIG_KEY} key in the cluster-info ConfigMap of {where}",
            reason="NoClusterInfo",
            hint="its control plane has not published it yet, or is not set up for joining with tokens",
        )
    start = cluster_info.SIGNATURE_PREFIX
    signatures = {key.removeprefix(start): text for key, text in values.items() if key.startswith(start) and text}
    return Published(kubeconfig, signatures)


def check(published: Published, token: tokens.Token, wanted: tuple[pins.Pin, ...]) -> cluster_info.ClusterInfo:
    """Return what is described, if 3 to 6 hold."""
    # 3. signed by this token
    signature = published.signatures.get(token.id)
    if signature is None:
        raise _no_signature(published, token)
    # 4. the signature is good
    _verify(signature, published, token)
    # 5. a ClusterInfo without credentials
    info = cluster_info.read(published.kubeconfig)
    # 6. its CA is pinned
    anchors(info, wanted)
    return info


def _no_signature(published: Published, token: tokens.Token) -> errors.HandfastError:
    if published.signatures:
        return diagnosis.unknown_token(token)
    return errors.Unavailable(
        f"cluster-info has no signature at all, so none for token id {token.id!r}",
        reason="SignatureMissing",
        hint="the bootstrapsigner controller does not run yet, or there is no token for signing: `handfast token list`",
    )


def _verify(signature: str, published: Published, token: tokens.Token) -> None:
    try:
        jws.verify(signature, published.kubeconfig.encode("utf-8"), token)
    except errors.Refused as refused:
        raise errors.Refused(
            f"failed to verify JWS signature of received cluster info object, can't trust this API Server: "
            f"{refused.message}",
            reason=refused.reason,
            hint="the secret half of the token is not the one that the cluster has, or somebody in between changes what "
            "the cluster publishes",
        ) from None


def anchors(info: cluster_info.ClusterInfo, wanted: tuple[pins.Pin, ...]) -> bytes | None:
    """With what the second fetch is verified (6, 7): PEM, or None for the roots of the system."""
    if not wanted:
        return info.ca
    ders = [] if info.ca is None else pem.certificates_from_pem(info.ca)
    try:
        pins.require_pinned(ders, wanted)
    except errors.Refused as refused:
        message = refused.message
        if not ders:
            message = "there is no CA in cluster-info that the pin could be compared with"
        raise errors.Refused(
            message,
            reason="WrongPin",
            hint="compare the pin with the one that `handfast token create --print-join-command` prints on a control "
            "plane; if it is the same, somebody in between answers in the cluster's place",
        ) from None
    return pem.certificates_to_pem(der for der in ders if pins.of_certificate(der) in wanted)


def require_same(first: Published, second: Published) -> None:
    """Check 7, after the second fetch."""
    if first.kubeconfig.encode("utf-8") != second.kubeconfig.encode("utf-8"):
        raise errors.Refused(
            "the second kubeconfig from the cluster-info ConfigMap (using validated TLS) was different from the first",
            reason="ClusterInfoChanged",
            hint="it may have changed in this moment: try again; if it happens again, somebody in between changes what "
            "the cluster publishes",
        )


def adopt(known: cluster_info.ClusterInfo, fresh: cluster_info.ClusterInfo) -> cluster_info.ClusterInfo:
    """What is known from now on, where `fresh` came over TLS that was verified with `known`; another cluster: Refused.

    It counts once a server verifies by `common_roots`.
    """
    # 8. the id that is known
    if known.id and fresh.id and known.id != fresh.id:
        raise errors.Refused(
            f"this is another cluster: its id is {fresh.id}, and {known.id} was known until now",
            reason="OtherCluster",
            hint="if the cluster was made anew, discover it anew with `handfast join`",
        )
    if known.id and not fresh.id:
        # Whoever shares a root with the cluster could leave the id out, and be taken for it.
        raise errors.Refused(
            f"what the cluster publishes does not say its id any more; {known.id} was known until now",
            reason="OtherCluster",
            hint="if the cluster is managed by something else now, discover it anew with `handfast join`",
        )
    # A CA is never given up for the roots of the system because a document is silent on it.
    adopted = dataclasses.replace(fresh, ca=fresh.ca if fresh.ca is not None else known.ca, id=fresh.id or known.id)
    # 9. not all roots at once
    common_roots(known, adopted)
    return adopted


def common_roots(known: cluster_info.ClusterInfo, fresh: cluster_info.ClusterInfo) -> tuple[bytes | None, ...]:
    """The bundles by each of which a server has to verify (9): PEM, or None for the roots of the system.

    Keys are compared, not certificates: a CA that was renewed with its key is the same one.
    """
    if known.ca is None or fresh.ca is None:
        return (None,) if known.ca == fresh.ca else (known.ca, fresh.ca)
    keys = {pins.of_certificate(der) for der in pem.certificates_from_pem(known.ca)}
    common = [der for der in pem.certificates_from_pem(fresh.ca) if pins.of_certificate(der) in keys]
    if not common:
        raise errors.Refused(
            "the cluster publishes none of the CA certificates any more that were known until now: its CA was replaced at "
            "once, or somebody changed what it publishes",
            reason="AllRootsChanged",
            hint="the copy that is here was left as it is; a rotation publishes both CAs for a while; if the CA was "
            "replaced on purpose, discover the cluster anew with `handfast join`",
        )
    return (pem.certificates_to_pem(common),)
