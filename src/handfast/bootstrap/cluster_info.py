# SPDX-License-Identifier: Apache-2.0
"""The ClusterInfo that tells a newcomer where a cluster is and whom to trust: written, read, and signed by tokens.

It fetches nothing and trusts nothing: whoever has the text must know why to believe it (`jws`, `pki.pins`, TLS). It
does not look inside certificates.

`build` writes a kubeconfig with exactly one cluster, named `""`, and no contexts, users or current context. An
extension of the cluster, which other readers ignore, carries what a kubeconfig has no field for: the cluster's
identifier (the UID of the namespace kube-system) and all its servers. The text depends on nothing but the ClusterInfo:
signatures cover its octets.

`read` returns only when all of this holds; every error names the field:

1. The text is one tame YAML document (`kubeconfig.load`); `apiVersion` and `kind` are right where they are given.
2. Nobody's credentials are in it: no user has any field, and no URL has a user or a password.
3. The cluster is the one named `""`, else that of the current context, else the only one.
4. It is not `insecure-skip-tls-verify`, and has no `proxy-url` and no `tls-server-name`: whoever ignored these would go
   elsewhere than was meant. Its CA is in the text, not at a path. Without a CA, the system's roots count.
5. Its server is an https URL (`endpoints.of_server`), and its extension is good (`cluster_extension`).

`signatures` signs for a token when all of this holds:

6. Its Secret is consistent (`tokens.require_consistent`), not being deleted, has the usage `signing`, and has not
   expired; one whose expiration cannot be read has. The caller sees to it that its secret half and groups are
   well formed (`token_secrets.fault`).
7. There is room: of too many tokens, those that expire last keep their signatures.
8. Nobody's credentials are in the text, whoever wrote it (`require_no_credentials`, which the caller has to call).
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.bootstrap import cluster_extension, jws, kubeconfig, tokens

NAMESPACE: Final = "kube-public"
NAME: Final = "cluster-info"
KUBECONFIG_KEY: Final = "kubeconfig"
SIGNATURE_PREFIX: Final = "jws-kubeconfig-"
EXTENSION: Final = cluster_extension.NAME
# How much data a ConfigMap holds. Kubernetes counts values; here keys count, too, because the request that carries
# them, and the record of who owns each key, have limits of their own.
MAX_DATA: Final = 1 << 20
# How much is read of a text that nobody vouches for. Reading YAML costs a hundred times what sending it does.
MAX_UNVERIFIED: Final = 64 << 10

# What needs no quotes in YAML.
_PLAIN_URL = re.compile(r"https://[A-Za-z0-9._~/:\[\]-]*[A-Za-z0-9/\]]")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9-]{1,64}")
_FOREVER = datetime.datetime.max.replace(tzinfo=datetime.UTC)
CREDENTIALS: Final = "CredentialsInClusterInfo"
_CREDENTIAL_FIELD: Final = re.compile(
    r"(token|tokenFile|client-key|client-key-data|client-certificate|client-certificate-data|username|password|exec"
    r"|auth-provider)[\"']?\s*:"
)
_NOT_SUPPORTED: Final = ("proxy-url", "tls-server-name")


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The servers in order of preference, at least one; the CA bundle (PEM; None: the system's roots); the identifier."""

    servers: tuple[str, ...]
    ca: bytes | None
    id: str


class SigningToken(msgspec.Struct, frozen=True):
    """A token whose Secret lets it sign, and until when; the end of time where it has no end."""

    token: tokens.Token
    until: datetime.datetime


class Signatures(msgspec.Struct, frozen=True):
    """The keys of the ConfigMap; the ids for which there was no room; when a token of these expires next."""

    data: dict[str, str]
    left_out: tuple[str, ...]
    next_change: datetime.datetime | None


def build(info: ClusterInfo) -> str:
    """The written form; Refused where `read` would not take it."""
    if not info.servers:
        raise errors.Misuse("servers: a ClusterInfo without a server leads nowhere")
    try:
        for index, server in enumerate(info.servers):
            cluster_extension.require_https(server, f"servers[{index}]")
        cluster_extension.require_id(info.id, "id")
    except cluster_extension.Malformed as malformed:
        raise _in_our_words(malformed) from None
    authority = [] if info.ca is None else [f"certificate-authority-data: {base64.b64encode(info.ca).decode('ascii')}"]
    cluster = [
        *authority,
        "extensions:",
        "- extension:",
        f"    id: {json.dumps(info.id)}",
        "    servers:",
        *(f"    - {_scalar(server)}" for server in info.servers),
        f"  name: {EXTENSION}",
        f"server: {_scalar(info.servers[0])}",
    ]
    lines = [
        "apiVersion: v1",
        "clusters:",
        "- cluster:",
        *(f"    {line}" for line in cluster),
        '  name: ""',
        "contexts: []",
        'current-context: ""',
        "kind: Config",
        "preferences: {}",
        "users: []",
    ]
    return "\n".join(lines) + "\n"


def read(text: str, limit: int = kubeconfig.MAX_BYTES) -> ClusterInfo:
    """Checks 1 to 5; `limit` is how long the text may be."""
    # 1. one tame document of this kind
    document = kubeconfig.load(text, limit)
    for key, wanted in (("apiVersion", "v1"), ("kind", "Config")):
        # A tuple, because what is no text may have no hash.
        if document.get(key) not in (None, "", wanted):
            raise _bad(f"{key}: must be {wanted!r}")
    # 2. nobody's credentials
    clusters = _without_credentials(document)
    # 3. which cluster
    where, cluster = _choose(document, clusters)
    # 4. a CA, and no way around it
    if cluster.get("insecure-skip-tls-verify") not in (None, False):
        raise errors.Refused(
            f"cluster-info: {where}.insecure-skip-tls-verify: not accepted: nobody could tell who answers",
            reason="InsecureClusterInfo",
            hint="put the CA of the cluster into certificate-authority-data instead",
        )
    for key in _NOT_SUPPORTED:
        if _text(cluster, key, where):
            raise _bad(f"{where}.{key}: not supported here")
    ca = _ca(cluster, where)
    # 5. its server and its extension
    server = _text(cluster, "server", where)
    beside = _extension(cluster, server, where)
    return ClusterInfo(tuple(dict.fromkeys((server, *beside.servers))), ca, beside.id)


def _without_credentials(document: Mapping[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    """The clusters of a document with nobody's credentials in it (2)."""
    for _, where, body in _entries(document, "user"):
        for key, value in body.items():
            if value not in (None, "", {}, []):
                raise _credentials(f"{where}.{key if _PLAIN_KEY.fullmatch(key) else json.dumps(key[:200])}")
    clusters = list(_entries(document, "cluster"))
    for _, where, body in clusters:
        for key in ("server", "proxy-url"):
            if "@" in _text(body, key, where):
                raise _credentials(f"{where}.{key}")
    return clusters


def require_no_credentials(text: str) -> None:
    """Return if nobody's credentials are in a text that is to be signed, else Refused (CredentialsInClusterInfo).

    What cannot be read here may be readable for others (8). So no field in it may have the name of a credential's field.
    """
    try:
        _without_credentials(kubeconfig.load(text))
    except errors.Refused as refused:
        if refused.reason == CREDENTIALS:
            raise
        if (named := _CREDENTIAL_FIELD.search(text)) is not None:
            raise _credentials(named[1]) from None


def signatures(
    kubeconfig: str,
    candidates: Iterable[SigningToken],
    now: datetime.datetime,
    room: int,
    *,
    sign: Callable[[bytes, str, str], str] = jws.sign,
) -> Signatures:
    """The signatures of `kubeconfig`, in `room` octets of keys and values. A `sign` that remembers saves time."""
    # 6. not expired; the rest of it was checked when the SigningToken was made
    signing = [each for each in candidates if each.until > now]
    # 7. Of two that expire together the lower id wins, so that every copy of the signer keeps the same.
    signing.sort(key=lambda each: each.token.id)
    signing.sort(key=lambda each: each.until, reverse=True)
    content = kubeconfig.encode("utf-8", "surrogatepass")
    data: dict[str, str] = {}
    left_out: list[str] = []
    for token in (each.token for each in signing):
        key = SIGNATURE_PREFIX + token.id
        signature = "" if left_out else sign(content, token.id, token.secret)
        room -= len(key) + len(signature)
        if left_out or room < 0:
            left_out.append(token.id)
        else:
            data[key] = signature
    # The last of them is the first to go.
    ends = signing[-1].until if signing else _FOREVER
    return Signatures(data, tuple(left_out), None if ends == _FOREVER else ends)


def signing_token(secret: tokens.TokenSecret) -> SigningToken | None:
    """The token of a Secret that lets it sign (6), also one that has expired; None: it does not sign at all."""
    if secret.deleting or tokens.SIGNING not in secret.usages:
        return None
    try:
        tokens.require_consistent(secret)
        until = tokens.parse_expiration(secret.expiration)
    except errors.Refused:
        return None
    return SigningToken(secret.token, _FOREVER if until is None else until)


def _scalar(url: str) -> str:
    # JSON's strings are YAML's, and not every reader agrees on what else needs quotes.
    return url if _PLAIN_URL.fullmatch(url) else json.dumps(url)


def _entries(document: Mapping[str, Any], noun: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Name, place and body of each cluster, context or user."""
    entries = document.get(f"{noun}s")
    if entries is None:
        return
    if not isinstance(entries, list):
        raise _bad(f"{noun}s: must be a list")
    for index, entry in enumerate(entries):
        where = f"{noun}s[{index}]"
        if not isinstance(entry, dict):
            raise _bad(f"{where}: must be a mapping")
        body = entry.get(noun)
        if body is None:
            body = {}
        if not isinstance(body, dict):
            raise _bad(f"{where}.{noun}: must be a mapping")
        yield _text(entry, "name", where), f"{where}.{noun}", body


def _choose(
    document: Mapping[str, Any], clusters: list[tuple[str, str, Mapping[str, Any]]]
) -> tuple[str, Mapping[str, Any]]:
    """3. Of two with one name the first counts, as in client-go."""
    wanted = [""]
    current = _text(document, "current-context", "")
    wanted += [_text(body, "cluster", where) for name, where, body in _entries(document, "context") if name == current]
    if len(clusters) == 1:
        wanted.append(clusters[0][0])
    for name in wanted:
        for found, where, body in clusters:
            if found == name:
                return where, body
    names = ", ".join(sorted(json.dumps(name) for name, _, _ in clusters)) or "none"
    raise errors.Refused(
        f'cluster-info: clusters: there is none named "", and no current context says which is meant; there are: {names}',
        reason="AmbiguousClusterInfo",
        hint="leave one cluster in it, or name it with current-context",
    )


def _ca(cluster: Mapping[str, Any], where: str) -> bytes | None:
    packed = "".join(_text(cluster, "certificate-authority-data", where).split())
    if not packed:
        if _text(cluster, "certificate-authority", where):
            raise errors.Refused(
                f"cluster-info: {where}.certificate-authority: a path says nothing on another machine",
                reason="BadClusterInfo",
                hint="`kubectl config view --flatten --minify` puts the certificates themselves into the text",
            )
        return None
    try:
        return base64.b64decode(packed, validate=True)
    except ValueError:
        raise _bad(f"{where}.certificate-authority-data: not base64") from None


def _extension(cluster: Mapping[str, Any], server: str, where: str) -> cluster_extension.Extension:
    try:
        cluster_extension.require_https(server, f"{where}.server")
        return cluster_extension.read(cluster, where)
    except cluster_extension.Malformed as malformed:
        raise _in_our_words(malformed) from None


def _in_our_words(malformed: cluster_extension.Malformed) -> errors.Refused:
    return _credentials(malformed.problem) if malformed.credentials else _bad(malformed.problem)


def _text(body: Mapping[str, Any], key: str, where: str) -> str:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise _bad(f"{'.'.join(filter(None, (where, key)))}: must be a string")
    return value or ""


def _credentials(where: str) -> errors.Refused:
    return errors.Refused(
        f"cluster-info: {where}: credentials do not belong in a ClusterInfo",
        reason=CREDENTIALS,
        hint="remove them; a bootstrap token is given beside it, with --tls-bootstrap-token",
    )


def _bad(message: str) -> errors.Refused:
    return errors.Refused(f"cluster-info: {message}", reason="BadClusterInfo")
