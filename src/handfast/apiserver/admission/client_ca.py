# SPDX-License-Identifier: Apache-2.0
"""Admission: who may change the client CAs that the server trusts, and to what. It follows no bundle; `client_cas` does.

Whoever adds a CA to ConfigMap kube-system/extension-apiserver-authentication can become anyone, and what else is in it
tells other servers whom to believe. So a write of that one object is let through only if

1. it changes nothing but labels and annotations, or
2. the caller may `trust` it: that verb on configmaps, by this name, in kube-system. The verbs of the role `edit` are
   not enough. Deleting it, and making it again, needs the same, since the CA that the cluster began with counts then;
   so do finalizers and owner references, since the garbage collector deletes for whoever names an owner.
   The history of CAs, ConfigMap kube-system/handfast-client-ca-history, is guarded in the same way.
3. And what it says afterwards under `client-ca-file`, where that changes, is at least one CA certificate. So is what it says of
   bootstrap credentials' CAs, where it says something of them.
4. The record of sources can be read afterwards, and is still there if it was: who replaces the object and does not know of it
   would turn what sources gave into what was put in by hand.

The ConfigMaps that a controller puts these CAs together from (`rules.machines.client_ca_sources`) become trust, too:

5. Creating or changing one needs the verb `trust` on it. Labels, annotations and finalizers are free; one that is being deleted
   gives nothing, so that a finalizer keeps no trust alive. An owner is not: the garbage collector deletes for it, and
   whoever takes one away keeps it from doing so.
6. Deleting one takes trust away, and needs nothing but `delete`.
7. What it holds afterwards, where that changes, is CA certificates or nothing, and no private key under any name, in
   `data` or `binaryData`. Those of bootstrap credentials have the common name of their signer, and the end beside them, if one
   is named, is an instant.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_client_ca.py |
|---|---|---|---|---|
| an editor of kube-system | update on configmaps | add a CA of their own | 2 | test_an_editor_cannot_add_a_ca |
| an editor of kube-system | delete, create on configmaps | bring back a retired first CA | 2 | test_an_editor_cannot_start_over |
| an editor of kube-system | update on configmaps | have the garbage collector delete it | 2 | test_an_editor_cannot_name_an_owner |
| an editor of kube-system | update on configmaps | fool other servers by requestheader-client-ca-file | 2 | test_the_other_keys_are_guarded |
| an editor of kube-system | update on configmaps | make it immutable, against the next rotation | 2 | test_an_editor_cannot_freeze_it |
| a careless administrator | trust | paste a key, a server's certificate, or half a file | 3 | test_what_is_no_bundle_is_refused |
| a careless administrator | trust, and a manifest of the bundle alone | lose the record of sources | 4 | test_the_record_is_not_lost_by_accident |
| an editor of openshift-config | create, update on configmaps | have a CA of their own believed | 5 | test_an_editor_cannot_write_a_source |
| … | … | have the garbage collector revoke it | 5 | test_an_editor_cannot_name_the_owner_of_a_source |
| a careless administrator | trust | paste the CA's private key into a source | 7 | test_a_source_is_ca_certificates |
| … | `kubectl create configmap --from-file`, which makes binary data of some files | the same | 7 | test_binary_data_holds_no_key_either |
| an editor of openshift-config | update on configmaps | put off the end of a bootstrap credential | 5 | test_an_editor_cannot_put_off_an_end |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects, status
from handfast.apiserver.access import client_cas
from handfast.apiserver.admission import plugin, trust
from handfast.rules import client_ca_bundle
from handfast.rules.machines import client_ca_sources, credential_end

_PLUGIN: Final = "ClientCATrust"
_GUARDED: Final = frozenset({client_ca_bundle.NAME, client_ca_bundle.HISTORY})
_FREE_IN_SOURCES: Final = trust.FREE | {"finalizers", "deletionTimestamp", "deletionGracePeriodSeconds"}
_CONTENT: Final = ("data", "binaryData")
_NAMES: Final = _GUARDED | client_ca_sources.NAMES
_BUNDLE: Final = "must be one or more CA certificates in PEM"
_INSTANT: Final = "must be an instant"
_ANYONE: Final = "whoever changes the client CAs can become anyone"
_BELIEVED: Final = "the CAs in it become client CAs of the API server"


def admit(write: plugin.Write, context: plugin.Context) -> None:
    """Refuse who may not change the trust of this server, and what is no bundle."""
    # Cheap test first: nearly every ConfigMap is another one.
    if write.name not in _NAMES:
        return
    if write.name in _GUARDED and write.namespace == client_ca_bundle.NAMESPACE:
        _admit_bundle(write, context)
    elif (write.namespace, write.name) in client_ca_sources.ALL:
        _admit_source(write, context)


def _admit_bundle(write: plugin.Write, context: plugin.Context) -> None:
    # 1. only labels and annotations
    if trust.unchanged(write):
        return
    # 2. the verb `trust`
    trust.require(write, context, _ANYONE, _PLUGIN)
    document = write.document
    if write.name != client_ca_bundle.NAME or document is None:
        return
    # 3. what it says afterwards are bundles
    if _text(document, client_ca_bundle.KEY) != _text(write.old, client_ca_bundle.KEY):
        _require(document, client_ca_bundle.KEY, client_cas.read, _BUNDLE)
    scoped = _text(document, client_ca_bundle.SCOPED_KEY)
    if scoped is not None and scoped != _text(write.old, client_ca_bundle.SCOPED_KEY):
        _require(document, client_ca_bundle.SCOPED_KEY, client_cas.read_scoped, _BUNDLE)
    # 4. and a record
    _require_record(document, write.old)


def _admit_source(write: plugin.Write, context: plugin.Context) -> None:
    document = write.document
    # 6. deleting takes trust away; 5. and some changes add none
    if document is None or trust.unchanged(write, _FREE_IN_SOURCES):
        return
    # 5. the verb `trust`
    trust.require(write, context, _BELIEVED, _PLUGIN)
    # 7. CA certificates or nothing, and no key
    if any(document.get(part) != (write.old or {}).get(part) for part in _CONTENT):
        _require_source(document, client_cas.read_bootstrap if _is_bootstrap(write) else client_cas.read_source)
        if _is_bootstrap(write):
            _require(document, credential_end.KEY, credential_end.require_readable, _INSTANT)


def _is_bootstrap(write: plugin.Write) -> bool:
    return (write.namespace, write.name) in client_ca_sources.BOOTSTRAP


def _text(document: objects.Document | None, key: str) -> Any:
    return jsonpath.at(document, "data", key)


def _require_record(document: objects.Document, old: objects.Document | None) -> None:
    key = client_ca_bundle.SOURCES_KEY
    before, after = _text(old, key), _text(document, key)
    if after is None and before is not None:
        detail = "it says which CAs came from which ConfigMap, and without it they would count as put in by hand"
        raise _invalid(document, key, f"{detail}; write {{}} if that is meant", missing=True)
    if after != before:
        _require(document, key, client_ca_bundle.record, "must be the record of sources")


def _require(document: objects.Document, key: str, read: Callable[[Mapping[str, Any]], object], must_be: str) -> None:
    try:
        read(document)
    except errors.Refused as refused:
        # The value itself is not shown: it may be a key that was pasted by mistake.
        detail = f"{must_be}: {refused.message}"
        raise _invalid(document, key, detail, missing=_text(document, key) is None) from None


def _require_source(document: objects.Document, read: Callable[[Mapping[str, Any]], object]) -> None:
    for field in client_ca_sources.private_keys(document):
        detail = "there is a private key in it: put the CA certificate there, and the key nowhere in the API"
        raise _invalid_field(document, field, detail)
    if str(_text(document, client_ca_sources.KEY) or "").strip():
        _require(document, client_ca_sources.KEY, read, _BUNDLE)


def _invalid(document: objects.Document, key: str, detail: str, *, missing: bool = False) -> status.StatusError:
    return _invalid_field(document, f"data[{key}]", detail, missing=missing)


def _invalid_field(document: objects.Document, field: str, detail: str, *, missing: bool = False) -> status.StatusError:
    reason, words = ("FieldValueRequired", "Required") if missing else ("FieldValueInvalid", "Invalid")
    cause = status.Cause(reason, f"{words} value: {detail}", field)
    return status.invalid("ConfigMap", "", str(objects.metadata(document)["name"]), [cause])


ROW = plugin.Row(
    _PLUGIN,
    frozenset({plugin.CREATE, plugin.UPDATE, plugin.DELETE}),
    admit,
    frozenset({("", "configmaps")}),
)
