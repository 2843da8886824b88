# SPDX-License-Identifier: Apache-2.0
"""Reads and writes kubeconfig documents: text in, one resolved context out, and back.

It does not open files: paths in the document are handed back as they stand, and whoever has the document's own path
resolves them. It does not look inside certificates or keys: see `pki`.

`parse` returns only when all of this holds; every error names the field:

1. The text is at most `MAX_BYTES`, one YAML (or JSON) document, a mapping at most `MAX_DEPTH` deep, without anchors,
   aliases, tags or merge keys (a few hundred bytes of aliases expand past 100 MB), and with no key twice (two readers
   would see two servers). Plain scalars that look like numbers or dates stay text: a bootstrap token may look like
   a number.
2. `apiVersion` is `v1` and `kind` is `Config`, where they are given.
3. The context asked for, or `current-context`, exists, and so do its cluster and, if it names one, its user.
4. The cluster has a `server` that is an http or https URL without credentials in it; inline data is canonical base64.
   Its other servers, where this program wrote any, are https URLs (`cluster_extension`).
5. `insecure-skip-tls-verify` is kept as a flag, and does not go together with a CA, as kubectl has it.
6. The user's credentials are certificate and key, token or token file. `exec`, `auth-provider`, basic authentication
   and impersonation are refused by name: silently leaving them out would call the server as somebody else.

Names that occur twice resolve to the first one, as in client-go. Unknown fields are ignored, as kubectl does.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib import parse as urls

import yaml

from handfast import errors
from handfast.bootstrap import cluster_extension

MAX_BYTES = 1 << 20
MAX_DEPTH = 32

_NOUNS = ("context", "cluster", "user")
# Fields that are paths.
_PATHS = frozenset({"certificate-authority", "client-certificate", "client-key", "tokenFile"})
_UNSUPPORTED = ("exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where the API server is and who vouches for it; data is PEM, a file is a path as written in the document.

    The proxy does not print: proxies are often given with a password.
    """

    name: str
    server: str
    certificate_authority_data: bytes | None = None
    certificate_authority: str = ""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = field(default="", repr=False)
    beside: cluster_extension.Extension = cluster_extension.NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """The credentials; where both data and a file are given, the data counts. Key and token never print."""

    name: str
    client_certificate_data: bytes | None = None
    client_certificate: str = ""
    client_key_data: bytes | None = field(default=None, repr=False)
    client_key: str = ""
    token: str = field(default="", repr=False)
    token_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kubeconfig:
    """One resolved context; `user` is None when it names none, which is to call anonymously."""

    context: str
    cluster: Cluster
    user: User | None
    namespace: str = ""


def build(
    *,
    cluster: str,
    server: str,
    ca: bytes,
    user: str,
    client_certificate: bytes,
    client_key: bytes,
    context: str = "",
) -> str:
    """The usual document: one cluster, one user with certificate and key in it, one context (`user@cluster`)."""
    return render(
        Kubeconfig(
            context=context or f"{user}@{cluster}",
            cluster=Cluster(name=cluster, server=server, certificate_authority_data=ca),
            user=User(name=user, client_certificate_data=client_certificate, client_key_data=client_key),
        )
    )


def render(config: Kubeconfig) -> str:
    """The document of one context as YAML, keys in kubectl's (alphabetical) order, without fields that are unset."""
    cluster, user = config.cluster, config.user
    described = _given(_fields(cluster))
    if cluster.beside.servers:
        described["extensions"] = [cluster_extension.entry(cluster.beside.id, cluster.beside.servers)]
    context = {"cluster": cluster.name, "namespace": config.namespace, "user": user.name if user else ""}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": config.context,
        "contexts": [{"name": config.context, "context": _given(context)}],
        "clusters": [{"name": cluster.name, "cluster": described}],
        "users": [{"name": user.name, "user": _given(_fields(user))}] if user else [],
    }
    return yaml.dump(document, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=MAX_BYTES)


def parse(text: str, context: str = "") -> Kubeconfig:
    """Checks 1 to 6; `context` overrides the document's current one."""
    # 1. one tame document
    return resolve(load(text), context)


def merge(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Several documents as one, as kubectl reads $KUBECONFIG: whatever is named first counts, entry by entry."""
    merged: dict[str, Any] = {}
    for document in documents:
        _require_kind(document)
        if not merged.get("current-context"):
            merged["current-context"] = document.get("current-context")
        for noun in _NOUNS:
            # `_named` takes the first of a name.
            merged[f"{noun}s"] = [*merged.get(f"{noun}s", ()), *_entries(document, noun)]
    return merged


def anchored(document: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    """The document with every path in it as `place` says, so that it can be merged with those of other directories."""
    placed = dict(document)
    for noun in _NOUNS:
        placed[f"{noun}s"] = [
            {**entry, noun: _placed(entry[noun], place)} if isinstance(entry.get(noun), dict) else entry
            for entry in _entries(document, noun)
        ]
    return placed


def _placed(body: Mapping[str, Any], place: Callable[[str], str]) -> dict[str, Any]:
    return {
        key: place(value) if key in _PATHS and isinstance(value, str) and value else value
        for key, value in body.items()
    }


def _require_kind(document: Mapping[str, Any]) -> None:
    """Returns if apiVersion and kind are right, or not there (2)."""
    for key, wanted in (("apiVersion", "v1"), ("kind", "Config")):
        found = _text(document, key, key)
        if found not in {"", wanted}:
            raise _refused(f"{key}: {found!r} is not supported; it must be {wanted!r}")


def resolve(document: Mapping[str, Any], context: str = "") -> Kubeconfig:
    """Checks 2 to 6, of a document that was loaded."""
    # 2. its kind
    _require_kind(document)
    # 3. the context
    chosen = context or _text(document, "current-context", "current-context")
    if not chosen:
        raise _refused("current-context: not set, and no context was asked for")
    where, body = _named(document, "context", chosen, "current-context" if not context else "--context")
    cluster_name = _text(body, "cluster", f"{where}.cluster")
    if not cluster_name:
        raise _refused(f"{where}.cluster: required")
    user_name = _text(body, "user", f"{where}.user")
    return Kubeconfig(
        context=chosen,
        cluster=_cluster(cluster_name, *_named(document, "cluster", cluster_name, f"{where}.cluster")),
        user=_user(user_name, *_named(document, "user", user_name, f"{where}.user")) if user_name else None,
        namespace=_text(body, "namespace", f"{where}.namespace"),
    )


def load(text: str, limit: int = MAX_BYTES) -> dict[str, Any]:
    """The document itself (1): also for those that are no complete kubeconfig, such as that of cluster-info."""
    if len(text) > limit:
        raise _refused(f"a kubeconfig of {len(text)} characters; at most {limit} are read")
    try:
        _require_tame(text)
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 -- _Loader is the safe loader with less in it
    except (yaml.YAMLError, UnicodeError) as broken:
        mark = getattr(broken, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 1}"
        # The parser's own words may quote the text, and the text holds keys.
        raise _refused(f"not one YAML document{line}") from None
    if not isinstance(document, dict):
        raise _refused("the document must be a mapping")
    return document


def _require_tame(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        where = "" if event.start_mark is None else f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise _refused(f"{where}: YAML anchors and aliases are not accepted")
        if getattr(event, "tag", None) is not None:
            raise _refused(f"{where}: YAML tags are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _refused(f"{where}: more than {MAX_DEPTH} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Loader(yaml.CSafeLoader):
    """The safe loader whose plain scalars are text, null or boolean, and whose mappings have no key twice."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[str, Any]:
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"line {key_node.start_mark.line + 1}"
        if key_node.tag != "tag:yaml.org,2002:str":
            raise _refused(f"{where}: a key must be a string, and merge keys are not accepted")
        key = key_node.value
        if key in mapping:
            raise _refused(f"{where}: {json.dumps(key[:200])} occurs twice in one mapping")
        mapping[key] = loader.construct_object(value_node, deep=True)
    return mapping


_KEPT = {"tag:yaml.org,2002:null", "tag:yaml.org,2002:bool", "tag:yaml.org,2002:merge"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


class _Dumper(yaml.CSafeDumper):
    """The safe dumper that also quotes whatever another reader could take for a number."""


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    # YAML readers differ on numbers: to Go, a token such as 012345.0123e56789012345 is one; to PyYAML it is text.
    style = '"' if text[:1] in {*"0123456789+-."} else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _quoted)


def _fields(cluster_or_user: Cluster | User) -> dict[str, Any]:
    """The document's fields of a cluster or user: the names of the attributes in kubeconfig's spelling."""
    fields: dict[str, Any] = {}
    for attribute in cluster_or_user.__dataclass_fields__:
        value = getattr(cluster_or_user, attribute)
        if attribute not in {"name", "beside"}:
            text = base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value
            fields[_SPELLING.get(attribute, attribute.replace("_", "-"))] = text
    return fields


# The one field of kubeconfig in camel case.
_SPELLING = {"token_file": "tokenFile"}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _named(document: Mapping[str, Any], noun: str, name: str, named_by: str) -> tuple[str, Mapping[str, Any]]:
    """Where the entry of that name is, and its body; `named_by` is the field that named it."""
    entries = _entries(document, noun)
    for index, entry in enumerate(entries):
        if _text(entry, "name", f"{noun}s[{index}].name") == name:
            body = entry.get(noun)
            if body is None:
                body = {}
            if not isinstance(body, dict):
                raise _refused(f"{noun}s[{index}].{noun}: must be a mapping")
            return f"{noun}s[{index}].{noun}", body
    known = ", ".join(sorted(json.dumps(entry.get("name")) for entry in entries)) or "none"
    raise _refused(f"{named_by}: there is no {noun} {json.dumps(name)}; the document has: {known}")


def _entries(document: Mapping[str, Any], noun: str) -> list[dict[str, Any]]:
    entries = document.get(f"{noun}s")
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise _refused(f"{noun}s: must be a list")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise _refused(f"{noun}s[{index}]: must be a mapping")
    return entries


def _cluster(name: str, where: str, body: Mapping[str, Any]) -> Cluster:
    cluster = Cluster(
        name=name,
        server=_text(body, "server", f"{where}.server"),
        certificate_authority_data=_data(body, "certificate-authority-data", where),
        certificate_authority=_text(body, "certificate-authority", f"{where}.certificate-authority"),
        insecure_skip_tls_verify=_flag(body, "insecure-skip-tls-verify", where),
        tls_server_name=_text(body, "tls-server-name", f"{where}.tls-server-name"),
        proxy_url=_text(body, "proxy-url", f"{where}.proxy-url"),
        beside=_beside(body, where),
    )
    # 4. a server
    if not cluster.server:
        raise _refused(f"{where}.server: required")
    _require_url(cluster.server, f"{where}.server")
    # 5. either a CA or none
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority_data or cluster.certificate_authority):
        raise _refused(f"{where}.insecure-skip-tls-verify: cannot be true beside a certificate authority")
    return cluster


def _beside(body: Mapping[str, Any], where: str) -> cluster_extension.Extension:
    try:
        return cluster_extension.read(body, where)
    except cluster_extension.Malformed as malformed:
        why = ": credentials do not belong in the URL" if malformed.credentials else ""
        raise _refused(f"{malformed.problem}{why}") from None


def _user(name: str, where: str, body: Mapping[str, Any]) -> User:
    # 6. a credential of a kind that is known
    for unsupported in _UNSUPPORTED:
        if body.get(unsupported) is not None:
            raise errors.Refused(
                f"{where}.{unsupported}: this kind of credential is not supported",
                reason="UnsupportedCredential",
                hint="use a client certificate, a token or a tokenFile",
            )
    user = User(
        name=name,
        client_certificate_data=_data(body, "client-certificate-data", where),
        client_certificate=_text(body, "client-certificate", f"{where}.client-certificate"),
        client_key_data=_data(body, "client-key-data", where),
        client_key=_text(body, "client-key", f"{where}.client-key"),
        token=_text(body, "token", f"{where}.token"),
        token_file=_text(body, "tokenFile", f"{where}.tokenFile"),
    )
    certificate = bool(user.client_certificate_data or user.client_certificate)
    if certificate != bool(user.client_key_data or user.client_key):
        missing = "client-key" if certificate else "client-certificate"
        raise _refused(f"{where}.{missing}: required, since certificate and key go together")
    return user


def _require_url(text: str, where: str) -> None:
    if "@" in text:
        raise _refused(f"{where}: credentials do not belong in the URL")
    try:
        url = urls.urlsplit(text)
        # The port is only looked at when asked for.
        good = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good:
        raise _refused(f"{where}: {text!r} is not a URL such as https://192.0.2.1:6443")


def _text(body: Mapping[str, Any], key: str, where: str) -> str:
    value = body.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        # Not quoted: a token written as yes or no is still a token.
        raise _refused(f"{where}: must be a string; put it in quotes")
    return value


def _flag(body: Mapping[str, Any], key: str, where: str) -> bool:
    value = body.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise _refused(f"{where}.{key}: must be true or false")
    return value


def _data(body: Mapping[str, Any], key: str, where: str) -> bytes | None:
    text = _text(body, key, f"{where}.{key}")
    if not text:
        return None
    # Folded and block scalars bring line ends along.
    packed = "".join(text.split())
    try:
        data = base64.b64decode(packed.encode("ascii"), validate=True)
    except (binascii.Error, ValueError):
        raise _refused(f"{where}.{key}: not base64") from None
    if base64.b64encode(data).decode("ascii") != packed:
        raise _refused(f"{where}.{key}: base64 is not canonical")
    return data


def _refused(message: str) -> errors.Refused:
    return errors.Refused(f"kubeconfig: {message}", reason="BadKubeconfig")
