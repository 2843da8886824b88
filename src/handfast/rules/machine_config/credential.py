# SPDX-License-Identifier: Apache-2.0
"""Which bootstrap credential the machines of a pool get: the bytes of a kubeconfig, by one rule for whoever renders and whoever serves.

The same documents give the same bytes, and so the same digest. A rendering names its credential by that digest, and whoever serves it
sees by the digest whether that is still the one that counts. It reads no API, and makes and revokes nothing.

1. Masters (and arbiters) get the certificate while a ConfigMap makes it count, none of the ConfigMaps is marked to be revoked, and there
   is a kubeconfig with it. Else they get what workers get. An object that is being deleted counts as gone.
2. That kubeconfig goes out as it is. It has certificate and key in it, and no paths: those would name files of the machine.
3. Workers get the token of `node-bootstrapper-token`, unless that is marked to be revoked after the roll-out; then that of
   `node-bootstrapper-token-next`, as soon as there is one. Until then the marked one goes out: it counts, and machines join with it.
4. A token counts if its Secret has the type of tokens and is for the bootstrap account, and if it has the form of a token.
5. A token goes out with the server that machines reach, by https, and with a CA for it: that of the ConfigMap `kubeconfig-data`, else that of
   the token's own Secret. Without a CA a machine would show its token to whoever a system root vouches for.

| who | holding | tries | stopped by | shown in tests/unit/rules/machine_config/test_credential.py |
|---|---|---|---|---|
| who may write Secrets there | another account's token, under the name of the workers' | have all machines get it | 4 | test_a_token_of_another_account_is_never_handed_out |
| … | a kubeconfig that names files | have machines show their own files to a server | 2 | test_a_masters_kubeconfig_without_its_certificate_in_it_is_refused |
| who may write `kubeconfig-data` | a URL without TLS | have the token sent in the clear | 5 | test_a_server_without_tls_is_refused |
| a thief | a token that is to be revoked after the roll-out | have it handed out beside the next one | 3 | test_a_token_that_is_to_be_revoked_gives_way_to_the_next |
| a reader of logs | a printed credential | take its token or key | it does not print | test_nothing_secret_is_printed |
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import jsonpath, objects
from handfast.bootstrap import kubeconfig
from handfast.rules.machine_config import names
from handfast.rules.machines import bootstrapper, installation
from handfast.rules.tokens import service_accounts

# The pools whose machines come in by certificate while it counts.
CERTIFICATE_POOLS: Final = frozenset({"master", "arbiter"})

# Namespace and name of everything that decides.
SECRETS: Final = tuple(
    (bootstrapper.NAMESPACE, name)
    for name in (bootstrapper.TOKEN_SECRET, names.NEXT_TOKEN_SECRET, installation.KUBECONFIG_SECRET)
)
CONFIG_MAPS: Final = (*bootstrapper.CONFIG_MAPS, (bootstrapper.NAMESPACE, names.KUBECONFIG_DATA))

NO_TOKEN: Final = "NoBootstrapToken"  # noqa: S105 - a reason
NO_SERVER: Final = "NoServerForMachines"
NO_CA: Final = "NoServerCA"
MALFORMED: Final = "MalformedBootstrapKubeconfig"

# What OpenShift's server calls them (facts of its machine-config-server).
_CLUSTER: Final = "local"
_USER: Final = "kubelet"
_NO_TOKEN: Final = (
    f"Secret {bootstrapper.NAMESPACE}/{bootstrapper.TOKEN_SECRET} has no token: node-bootstrapper-token-controller makes it, and "
    "serviceaccount-token-controller, or the cluster's kube-controller-manager, fills it in"
)
_TOKEN_FORM: Final = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token in its Secret, the CA beside it, and whether it is to be revoked after the roll-out. The token does not print."""

    text: str = field(repr=False)
    ca: bytes = b""
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What there is now; None for what is not there.

    `trusted`: a ConfigMap makes the masters' certificate count. `revoking_masters`: one of those is marked. `shared` and `next` are the
    workers' tokens: the one in force, and the one that replaces it after a roll-out.
    """

    trusted: bool = False
    revoking_masters: bool = False
    masters_kubeconfig: bytes | None = field(default=None, repr=False)
    shared: Token | None = None
    next: Token | None = None
    server: str = ""
    ca: bytes = b""


@dataclass(frozen=True, slots=True)
class Credential:
    """A kubeconfig that a machine comes in with, and the digest by which renderings name it. The kubeconfig does not print."""

    kind: str
    kubeconfig: bytes = field(repr=False)

    @property
    def digest(self) -> str:
        return f"sha256:{hashlib.sha256(self.kubeconfig).hexdigest()}"


class Missing(msgspec.Struct, frozen=True):
    """There is none to hand out now, and why."""

    reason: str
    sentence: str


def choose(pool: str, seen: Seen) -> Credential | Missing:
    """The credential of a pool's machines."""
    # 1. the certificate, while it counts
    counts = seen.trusted and not seen.revoking_masters
    if pool in CERTIFICATE_POOLS and counts and seen.masters_kubeconfig is not None:
        return _certificate(seen.masters_kubeconfig)
    return _service_account(seen)


def _certificate(text: bytes) -> Credential | Missing:
    # 2. as it is, with certificate and key in it
    where = f"Secret {bootstrapper.NAMESPACE}/{installation.KUBECONFIG_SECRET}"
    try:
        user = kubeconfig.parse(text.decode("utf-8")).user
    except (errors.Refused, UnicodeError) as refused:
        why = refused.message if isinstance(refused, errors.Refused) else "not UTF-8"
        return Missing(MALFORMED, f"{where}: {installation.KUBECONFIG_KEY}: {why}")
    if user is None or not (user.client_certificate_data and user.client_key_data):
        sentence = f"{where}: {installation.KUBECONFIG_KEY}: is to have a client certificate and its key in it"
        return Missing(MALFORMED, sentence)
    return Credential(names.CERTIFICATE, text)


def _service_account(seen: Seen) -> Credential | Missing:
    # 3. the one in force; the next one, where there is none in force or it is marked
    token = seen.shared
    if token is None or (token.marked and seen.next is not None):
        token = seen.next
    if token is None:
        return Missing(NO_TOKEN, _NO_TOKEN)
    # 5. a server that is reached by https, and a CA for it
    where = f"ConfigMap {bootstrapper.NAMESPACE}/{names.KUBECONFIG_DATA}"
    if not seen.server.startswith("https://"):
        return Missing(NO_SERVER, f"{where}: {names.SERVER_KEY}: is to be the https URL of the API server for machines")
    ca = seen.ca or token.ca
    if not ca:
        return Missing(NO_CA, f"{where}: {names.CA_KEY}: is to be the CA of the API server, and no Secret has one")
    return _with_token(seen.server, ca, token.text, where)


def _with_token(server: str, ca: bytes, token: str, where: str) -> Credential | Missing:
    cluster = kubeconfig.Cluster(name=_CLUSTER, server=server, certificate_authority_data=ca)
    user = kubeconfig.User(name=_USER, token=token)
    text = kubeconfig.render(kubeconfig.Kubeconfig(context=_USER, cluster=cluster, user=user))
    try:
        kubeconfig.parse(text)
    except errors.Refused as refused:
        return Missing(NO_SERVER, f"{where}: {names.SERVER_KEY}: {refused.message}")
    return Credential(names.SERVICE_ACCOUNT, text.encode("utf-8"))


# --- what is read


def read(secrets: Iterable[Mapping[str, Any]], config_maps: Iterable[Mapping[str, Any]]) -> Seen:
    """What these documents say; those of other names, and those that are being deleted, are left out."""
    kept, maps = _by_place(secrets), _by_place(config_maps)
    trust = [maps[place] for place in bootstrapper.CONFIG_MAPS if place in maps]
    masters = kept.get((bootstrapper.NAMESPACE, installation.KUBECONFIG_SECRET), {})
    where = maps.get((bootstrapper.NAMESPACE, names.KUBECONFIG_DATA), {})
    return Seen(
        trusted=bool(trust),
        revoking_masters=any(map(is_marked, trust)),
        masters_kubeconfig=_decoded(jsonpath.mapping(masters, "data"), installation.KUBECONFIG_KEY) or None,
        shared=_token(kept.get((bootstrapper.NAMESPACE, bootstrapper.TOKEN_SECRET))),
        next=_token(kept.get((bootstrapper.NAMESPACE, names.NEXT_TOKEN_SECRET))),
        server=jsonpath.text(where, "data", names.SERVER_KEY),
        ca=_decoded(jsonpath.mapping(where, "binaryData"), names.CA_KEY)
        or jsonpath.text(where, "data", names.CA_KEY).encode("utf-8"),
    )


def is_marked(document: Mapping[str, Any]) -> bool:
    """Whether the credential of this object is to be revoked once its replacement is everywhere."""
    annotations = jsonpath.mapping(objects.metadata(document), "annotations")
    return bool(annotations.get(names.REVOKE_AFTER_ROLLOUT))


def _by_place(documents: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    metas = ((objects.metadata(document), document) for document in documents)
    return {
        (jsonpath.text(meta, "namespace"), jsonpath.text(meta, "name")): document
        for meta, document in metas
        if not meta.get("deletionTimestamp")
    }


def _token(document: Mapping[str, Any] | None) -> Token | None:
    # 4. of the type of tokens, for the bootstrap account, and a token by its form
    if document is None or document.get("type") != service_accounts.LEGACY_TYPE:
        return None
    annotations = jsonpath.mapping(objects.metadata(document), "annotations")
    if annotations.get(service_accounts.ACCOUNT_NAME) != bootstrapper.ACCOUNT:
        return None
    data = jsonpath.mapping(document, "data")
    text = _decoded(data, "token").decode("ascii", "replace")
    if _TOKEN_FORM.fullmatch(text) is None:
        return None
    return Token(text=text, ca=_decoded(data, "ca.crt"), marked=is_marked(document))


def _decoded(data: Mapping[str, Any], key: str) -> bytes:
    """The bytes of a key; nothing for what is no base64, as for what is not there."""
    try:
        return base64.b64decode(jsonpath.text(data, key), validate=True)
    except (binascii.Error, ValueError):
        return b""
