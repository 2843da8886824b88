# SPDX-License-Identifier: Apache-2.0
"""Decides how a machine may find its cluster, and whether what it found is that cluster.

It fetches nothing and waits for nothing: `client/discovery.py` does, and asks here. What to tell if it fails is in
`diagnosis`.

The method (`choose`), each a usage error when it does not hold:

 1. `--token` stands for `--discovery-token` and for `--tls-bootstrap-token`, where those are not given. Where no TLS
    bootstrap token is given at all, the discovery token is that, too, as with kubeadm.
 2. Exactly one of a discovery token and `--discovery-file`.
 3. A token needs an endpoint, and a pin of the CA or the flag that does without. Pins count, if there are any.
 4. A file is a path, an https URL or `-`; pins do not go with it, since nothing would be compared with them.
 5. `--discovery-ca-file` goes with a URL.
 6. There is a TLS bootstrap token; beside a file it may be that of a bootstrap kubeconfig, which the caller reads.

What was fetched without verified TLS (`read_config_map`, `check`, `require_same`):

 1. It is the ConfigMap `cluster-info`.
 2. It has `kubeconfig`.
 3. It has a signature of the token's id.
 4. The signature is good (`jws.verify`).
 5. The kubeconfig is a ClusterInfo without credentials (`cluster_info.read`).
 6. One of its CA certificates is pinned, where there are pins.
 7. The same `kubeconfig`, octet for octet, comes over TLS that is verified with its CA; with pins, only with the
    certificates that are pinned (`anchors`): somebody with the token could sign a bundle of the real CA and their own.
    That fetch is the caller's.

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
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from handfast import errors
from handfast.bootstrap import cluster_info, diagnosis, endpoints, jws, tokens
from handfast.pki import pem, pins

T = TypeVar("T")

PATH: Final = f"/api/v1/namespaces/{cluster_info.NAMESPACE}/configmaps/{cluster_info.NAME}"


class Usage(errors.Refused):
    """The command line asks for something that is not allowed."""

    reason = "Usage"
    from_flag = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What was typed; None: not given."""

    endpoints: tuple[str, ...] = ()
    token: str | None = field(default=None, repr=False)
    discovery_token: str | None = field(default=None, repr=False)
    tls_bootstrap_token: str | None = field(default=None, repr=False)
    discovery_file: str | None = None
    pins: tuple[str, ...] = ()
    unsafe_skip_ca_verification: bool = False
    ca_file: bool = False


@dataclass(frozen=True, slots=True)
class ByToken:
    """Discovery by a signature. No pins: the user wants none."""

    token: tokens.Token
    pins: tuple[pins.Pin, ...]


@dataclass(frozen=True, slots=True)
class ByFile:
    """Discovery by a document in a file, at an https URL or on stdin."""

    source: str

    @property
    def is_url(self) -> bool:
        return self.source.startswith("https://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a join is going to do."""

    endpoints: tuple[endpoints.Endpoint, ...]
    method: ByToken | ByFile
    tls_token: tokens.Token


def choose(flags: Flags) -> Plan:
    """The method (1 to 6 of the first list)."""
    # 1.
    given = flags.discovery_token if flags.discovery_token is not None else flags.token
    typed = tuple(_typed(text, endpoints.parse) for text in flags.endpoints)
    # 2.
    if given is not None and flags.discovery_file is not None:
        raise _two_methods(flags)
    method: ByToken | ByFile
    if given is not None:
        method = _by_token(given, flags)
    elif flags.discovery_file is not None:
        method = _by_file(flags.discovery_file, flags)
    else:
        raise Usage(
            "no discovery method was given",
            reason="NoDiscoveryMethod",
            hint="give --token (or --discovery-token) with an endpoint, or --discovery-file with a file, an https URL or -",
        )
    # 5.
    if flags.ca_file and not (isinstance(method, ByFile) and method.is_url):
        raise Usage(
            "--discovery-ca-file is for a --discovery-file that is an https URL",
            reason="UnusedFlag",
            hint="leave it out; the CA of the cluster is pinned with --discovery-token-ca-cert-hash",
        )
    # 1., 6.
    tls = flags.tls_bootstrap_token if flags.tls_bootstrap_token is not None else given
    if tls is None:
        raise Usage(
            "no token was given to log in with after discovery",
            reason="NoBootstrapToken",
            hint="give it with --tls-bootstrap-token, or have a bootstrap kubeconfig with a token at "
            "--bootstrap-kubeconfig: a discovery file holds no credentials",
        )
    return Plan(endpoints=typed, method=method, tls_token=_typed(tls, tokens.parse))


def _two_methods(flags: Flags) -> Usage:
    hint = "leave one of them out"
    if flags.discovery_token is None:
        hint = "beside --discovery-file, the token to log in with is given as --tls-bootstrap-token"
    flag = "--token" if flags.discovery_token is None else "--discovery-token"
    return Usage(f"{flag} and --discovery-file cannot both be set", reason="TwoDiscoveryMethods", hint=hint)


def _by_token(text: str, flags: Flags) -> ByToken:
    token = _typed(text, tokens.parse)
    # 3.
    if not flags.endpoints:
        raise Usage(
            "discovery with a token needs the address of an API server",
            reason="NoEndpoint",
            hint="name it as the argument, as in: handfast join 192.0.2.1:6443 --token …",
        )
    if not flags.pins and not flags.unsafe_skip_ca_verification:
        raise Usage(
            "discovery with a token and without a pin of the CA is not safe: whoever else has the token could answer "
            "in the cluster's place",
            reason="NoPin",
            hint="add the --discovery-token-ca-cert-hash that `handfast token create --print-join-command` prints, or "
            "--discovery-token-unsafe-skip-ca-verification",
        )
    return ByToken(token, tuple(_typed(pin, pins.parse) for pin in flags.pins))


def _by_file(source: str, flags: Flags) -> ByFile:
    # 4.
    if flags.pins or flags.unsafe_skip_ca_verification:
        flag = "--discovery-token-ca-cert-hash" if flags.pins else "--discovery-token-unsafe-skip-ca-verification"
        raise Usage(
            f"{flag} is for discovery with a token, not for --discovery-file",
            reason="UnusedFlag",
            hint="leave it out: the CA in the file is trusted because the file is",
        )
    if not source:
        raise Usage("--discovery-file is empty", hint="name a file, an https URL, or - for stdin")
    scheme, found, _ = source.partition("://")
    if found and scheme.lower() != "https":
        raise Usage(
            f"--discovery-file: {source!r}: if a URL is used, the scheme must be https",
            hint="name a file, an https URL, or - for stdin",
        )
    if found and not _is_url(source):
        raise Usage(
            "--discovery-file: this is not a URL such as https://example.com/cluster.yaml, without credentials in it",
            hint="name a file, an https URL, or - for stdin",
        )
    return ByFile(f"https://{source[8:]}" if found else source)


def _is_url(source: str) -> bool:
    site = re.match(r"https://[^/?#@]+(?=[/?#]|$)", source, re.IGNORECASE)
    if site is None or re.fullmatch(r"[!-~]+", source) is None:
        return False
    try:
        endpoints.of_server(site[0])
    except errors.Refused:
        return False
    return True


def _typed(text: str, parse: Callable[[str], T]) -> T:
    try:
        return parse(text)
    except errors.Refused as refused:
        raise Usage(refused.message, reason=refused.reason, hint=refused.hint) from None


@dataclass(frozen=True, slots=True)
class Published:
    """The data of the ConfigMap, not believed yet."""

    kubeconfig: str
    signatures: Mapping[str, str]


def read_config_map(body: bytes, where: str) -> Published:
    """Checks 1 and 2 of the second list."""
    # 1.
    document = diagnosis.document(body)
    metadata, data = document.get("metadata"), document.get("data")
    named = isinstance(metadata, dict) and metadata.get("name") == cluster_info.NAME
    if document.get("kind") != "ConfigMap" or not named:
        raise diagnosis.not_an_api_server(where, "the answer is not the ConfigMap cluster-info")
    values = {key: text for key, text in data.items() if isinstance(text, str)} if isinstance(data, dict) else {}
    # 2.
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
    """Checks 3 to 6 of the second list."""
    # 3.
    signature = published.signatures.get(token.id)
    if signature is None:
        raise _unsigned(published, token)
    # 4.
    _verify(signature, published, token)
    # 5.
    info = cluster_info.read(published.kubeconfig)
    # 6.
    anchors(info, wanted)
    return info


def _unsigned(published: Published, token: tokens.Token) -> errors.HandfastError:
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
    # 8.
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
    found = dataclasses.replace(fresh, ca=fresh.ca if fresh.ca is not None else known.ca, id=fresh.id or known.id)
    # 9.
    common_roots(known, found)
    return found


def common_roots(known: cluster_info.ClusterInfo, fresh: cluster_info.ClusterInfo) -> tuple[bytes | None, ...]:
    """9. The bundles, PEM or None for the roots of the system, by each of which a server has to verify.

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
