# SPDX-License-Identifier: Apache-2.0
"""Admission's verb `trust`: ConfigMaps that say whom to believe need it beside `create`, `update` and `delete`.

Which ConfigMaps these are, and what may be written into them, is not known here: `client_ca` and `machine_settings` know it.
"""

from __future__ import annotations

from typing import Any, Final

from handfast.api import objects
from handfast.apiserver.admission import plugin
from handfast.rules import access, decision

VERB: Final = "trust"
# What anyone with `update` may change, and what the server itself counts on.
FREE: Final = frozenset({"labels", "annotations", "managedFields", "resourceVersion", "generation"})


def unchanged(write: plugin.Write, free: frozenset[str] = FREE) -> bool:
    """Whether an update leaves everything but these fields of the metadata as it is."""
    old, document = write.old, write.document
    return old is not None and document is not None and _guarded(old, free) == _guarded(document, free)


def _guarded(document: objects.Document, free: frozenset[str]) -> dict[str, Any]:
    metadata = {key: value for key, value in objects.metadata(document).items() if key not in free}
    return {**document, "metadata": metadata}


def require(write: plugin.Write, context: plugin.Context, because: str, name: str) -> None:
    """Refuse who may not `trust` this ConfigMap, in the name of this plugin."""
    question = access.Attributes(
        user=write.user.name,
        groups=write.user.groups,
        verb=VERB,
        is_resource=True,
        version="v1",
        plural="configmaps",
        namespace=write.namespace,
        name=write.name,
    )
    verdict = context.decide(question)
    if isinstance(verdict, decision.Approve):
        return
    why = (
        f"{access.refusal(question, verdict)}: {because}, so that {write.operation} of "
        f'this object, except of its labels and annotations, also needs the verb "{VERB}" on it'
    )
    raise plugin.Refusal(write, decision.Deny("TrustNotPermitted", why, name))
