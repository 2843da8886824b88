# SPDX-License-Identifier: Apache-2.0
"""Admission: who may change the client CAs that the server trusts, and to what. It follows no bundle; `client_cas` does.

Whoever adds a CA to ConfigMap kube-system/extension-apiserver-authentication can become anyone, and what else is in it
tells other servers whom to believe. So a write of that one object is let through only if

1. it changes nothing but labels and annotations, or
2. the caller may `trust` it: that verb on configmaps, by this name, in kube-system. The verbs of the role `edit` are
   not enough. Deleting it, and making it again, needs the same, since the CA that the cluster began with counts then;
   so do finalizers and owner references, since the garbage collector deletes for whoever names an owner.
   The history of CAs, ConfigMap kube-system/handfast-client-ca-history, is guarded in the same way.
3. And what it says afterwards under `client-ca-file`, where that changes, is at least one CA certificate.

| who | holding | tries | stopped by | shown in tests/unit/apiserver/admission/test_client_ca.py |
|---|---|---|---|---|
| an editor of kube-system | update on configmaps | add a CA of their own | 2 | test_an_editor_cannot_add_a_ca |
| an editor of kube-system | delete, create on configmaps | bring back a retired first CA | 2 | test_an_editor_cannot_start_over |
| an editor of kube-system | update on configmaps | have the garbage collector delete it | 2 | test_an_editor_cannot_name_an_owner |
| an editor of kube-system | update on configmaps | fool other servers by requestheader-client-ca-file | 2 | test_the_other_keys_are_guarded |
| an editor of kube-system | update on configmaps | make it immutable, against the next rollover | 2 | test_an_editor_cannot_freeze_it |
| a careless administrator | trust | paste a key, a server's certificate, or half a file | 3 | test_what_is_no_bundle_is_refused |
"""

from __future__ import annotations

from typing import Any, Final

from handfast import errors
from handfast.api import jsonpath, objects, status
from handfast.apiserver.access import client_cas
from handfast.apiserver.admission import plugin
from handfast.rules import access, client_ca_bundle, decision

VERB: Final = "trust"
_PLUGIN: Final = "ClientCATrust"
_GUARDED: Final = frozenset({client_ca_bundle.NAME, client_ca_bundle.HISTORY})
_FIELD: Final = f"data[{client_ca_bundle.KEY}]"
# What anyone with `update` may change, and what the server itself counts on.
_FREE: Final = frozenset({"labels", "annotations", "managedFields", "resourceVersion", "generation"})


def admit(attributes: plugin.Attributes, context: plugin.Context) -> None:
    """Refuse who may not change the trust of this server, and what is no bundle."""
    # Cheap test first: nearly every ConfigMap is another one.
    if attributes.name not in _GUARDED or attributes.namespace != client_ca_bundle.NAMESPACE:
        return
    # 1. only labels and annotations
    if (
        attributes.old is not None
        and attributes.document is not None
        and _guarded(attributes.old) == _guarded(attributes.document)
    ):
        return
    # 2. the verb `trust`
    _require_trust(attributes, context)
    # 3. what it says afterwards is a bundle
    if (
        attributes.name == client_ca_bundle.NAME
        and attributes.document is not None
        and _text(attributes.document) != _text(attributes.old)
    ):
        _require_bundle(attributes.document)


def _guarded(document: objects.Document) -> dict[str, Any]:
    metadata = {key: value for key, value in objects.metadata(document).items() if key not in _FREE}
    return {**document, "metadata": metadata}


def _text(document: objects.Document | None) -> Any:
    return jsonpath.at(document, "data", client_ca_bundle.KEY)


def _require_trust(attributes: plugin.Attributes, context: plugin.Context) -> None:
    question = access.Attributes(
        user=attributes.user.name,
        groups=attributes.user.groups,
        verb=VERB,
        is_resource=True,
        version="v1",
        plural="configmaps",
        namespace=client_ca_bundle.NAMESPACE,
        name=attributes.name,
    )
    verdict = context.decide(question)
    if isinstance(verdict, decision.Approve):
        return
    why = (
        f"{access.refusal(question, verdict)}: whoever changes the client CAs can become anyone, so that {attributes.operation} of "
        f'this object, except of its labels and annotations, also needs the verb "{VERB}" on it'
    )
    raise plugin.Refusal(attributes, decision.Deny("TrustNotPermitted", why, _PLUGIN))


def _require_bundle(document: objects.Document) -> None:
    try:
        client_cas.read(document)
    except errors.Refused as refused:
        # The value itself is not shown: it may be a key that was pasted by mistake.
        detail = f"must be one or more CA certificates in PEM: {refused.message}"
        missing = _text(document) is None
        cause = status.Cause(
            "FieldValueRequired" if missing else "FieldValueInvalid",
            f"Required value: {detail}" if missing else f"Invalid value: {detail}",
            _FIELD,
        )
        raise status.invalid("ConfigMap", "", client_ca_bundle.NAME, [cause]) from None


ROW = plugin.Row(
    _PLUGIN,
    frozenset({plugin.CREATE, plugin.UPDATE, plugin.DELETE}),
    admit,
    frozenset({("", "configmaps")}),
)
