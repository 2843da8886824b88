# SPDX-License-Identifier: Apache-2.0
"""CertificateSigningRequests, in the words of `certificates.k8s.io`.

One typed model for everyone: who asks for a certificate, who approves, signs and deletes requests, and who shows them.
It is whole: a request that is decoded, changed by `updated` and sent back loses nothing. `rules.certificates.signers`
says which requests a signer honours, and `rules.certificates.admission` who may approve them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from handfast.api import metadata, objects

GROUP: Final = "certificates.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "CertificateSigningRequest"

# Types of conditions.
APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"
# A condition without a status holds, as upstream reads conditions from before the field existed.
_HOLDS: Final = frozenset({"True", ""})


class Meta(metadata.Meta, frozen=True, omit_defaults=True, gc=False):
    """The metadata nearly everyone needs, and what an update would take away if it left it out."""

    creation_timestamp: str | None = None
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[dict[str, Any]] | None = None


class Spec(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """All of a spec: it never changes, and goes back as it came. Lists, because rules read JSON, which has no tuples."""

    request: str = ""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: list[str] | None = None
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str] | None] | None = None


class Condition(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """One condition, whole."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class Status(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, gc=False):
    """What became of it."""

    conditions: list[Condition] | None = None
    certificate: str | None = None


class Request(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A CertificateSigningRequest. Without metadata it is none."""

    metadata: Meta
    spec: Spec = Spec()
    status: Status = Status()

    def condition(self, kind: str) -> Condition | None:
        """The condition of this type, if it holds."""
        for row in self.status.conditions or ():
            if row.type == kind and row.status in _HOLDS:
                return row
        return None

    @property
    def is_open(self) -> bool:
        """Whether it has no certificate, was not denied and has not failed."""
        return not self.status.certificate and self.condition(DENIED) is None and self.condition(FAILED) is None

    def document(self) -> objects.Document:
        """As a document, for the rules that judge any document."""
        document: objects.Document = msgspec.to_builtins(self)
        return document

    def updated(
        self,
        *,
        added: Condition | None = None,
        certificate: str = "",
        without: str = "",
        other_conditions: Sequence[Condition] = (),
    ) -> Update:
        """As it is sent back: with one more condition, or several, or its certificate, and without conditions of one type."""
        kept = (row for row in self.status.conditions or () if row.type != without or not without)
        conditions = [*kept, *([added] if added is not None else ()), *other_conditions]
        return Update(self.metadata, self.spec, Status(conditions, certificate or self.status.certificate))


class Update(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A request on its way back."""

    metadata: Meta
    spec: Spec
    status: Status
    api_version: str = API_VERSION
    kind: str = KIND


# For one request out of an answer.
DECODER: Final = msgspec.json.Decoder(Request)


def new(name: str, spec: Spec) -> objects.Document:
    """A request as it is created."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name},
        "spec": msgspec.to_builtins(spec),
    }


def condition(kind: str, reason: str, message: str, now_text: str) -> Condition:
    """A condition that holds from now on. Its times are set here, too: not every server would."""
    return Condition(kind, "True", reason, message, now_text, now_text)
