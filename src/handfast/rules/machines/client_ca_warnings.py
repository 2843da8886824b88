# SPDX-License-Identifier: Apache-2.0
"""What an operator is to be told of the sources of client CAs: a reason and a sentence for each. It tells nobody itself.

1. What is wrong with a source, and how it goes on without.
2. A bootstrap CA that both bootstrap ConfigMaps hold: deleting one of them revokes nothing.
3. A bootstrap CA whose key is also that of a client CA without a limit: it may sign for anyone, and deleting its ConfigMap
   revokes nothing.
4. A ConfigMap with the name of the bootstrap one in a namespace where nobody reads it.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from handfast.api import objects
from handfast.rules import client_ca_bundle
from handfast.rules.machines import bootstrapper, client_ca_sources, client_cas

TWICE: Final = "BootstrapCAInTwoPlaces"
NOT_SCOPED: Final = "BootstrapCANotScoped"
WRONG_NAMESPACE: Final = "ClientCASourceInWrongNamespace"
READABLE: Final = "SourcesReadable"
_FINE: Final = "AsExpected"
# Far less than the largest object, and enough for every source.
_MESSAGE: Final = 4096

Place = tuple[str, str]
Contents = Mapping[Place, client_ca_sources.Content]


class Warned(msgspec.Struct, frozen=True):
    """What is to be said of one ConfigMap."""

    place: Place
    reason: str
    sentence: str


def of(contents: Contents, unscoped: Sequence[bytes]) -> list[Warned]:
    """What is to be said of these sources, beside the CAs (DER) that may sign for anyone."""
    # 1. what is wrong with one
    said = [
        Warned(place, problem.reason, f"as a source of client CAs: {problem.sentence}")
        for place, content in contents.items()
        for problem in content.problems
    ]
    for place in client_ca_sources.BOOTSTRAP:
        content = contents.get(place, client_ca_sources.Content())
        others = [other for other in client_ca_sources.BOOTSTRAP if other != place]
        # 2. in both places
        for other in others:
            both = content.fingerprints & contents.get(other, client_ca_sources.Content()).fingerprints
            said += [Warned(place, TWICE, _twice(one, other)) for one in sorted(both)]
        # 3. without a limit
        for certificate in client_cas.also_unscoped(content.certificates, unscoped):
            said.append(Warned(place, NOT_SCOPED, _not_scoped(certificate.fingerprint)))
    return said


def wrong_namespace(place: Place) -> Warned | None:
    """What is to be said of a ConfigMap by its place alone (4)."""
    namespace, name = place
    if name != bootstrapper.CONFIG_MAP or place in client_ca_sources.BOOTSTRAP:
        return None
    return Warned(
        place,
        WRONG_NAMESPACE,
        f"a ConfigMap {name} in the namespace {namespace} is read by nobody: bootstrap credentials are believed by the one in "
        f"{bootstrapper.CONFIG_NAMESPACE} (or {bootstrapper.MANAGED_NAMESPACE}); make it there",
    )


def condition(
    contents: Contents, before: Sequence[client_ca_bundle.Condition], now: datetime.datetime
) -> client_ca_bundle.Condition:
    """Whether every source can be read, as a condition; its time is that of the last change of the answer."""
    problems = [(place, problem) for place, content in contents.items() for problem in content.problems]
    status = "False" if problems else "True"
    same = [old.last_transition_time for old in before if (old.type, old.status) == (READABLE, status)]
    sentences = "; ".join(f"{client_ca_sources.key(place)}: {problem.sentence}" for place, problem in problems)
    return client_ca_bundle.Condition(
        type=READABLE,
        status=status,
        reason=problems[0][1].reason if problems else _FINE,
        message=sentences[:_MESSAGE],
        last_transition_time=same[0] if same else objects.timestamp(now),
    )


def _twice(fingerprint: str, other: Place) -> str:
    return (
        f"the CA with SHA-256 {fingerprint} is in ConfigMap {client_ca_sources.key(other)}, too: its credentials are refused only "
        "when it is in neither"
    )


def _not_scoped(fingerprint: str) -> str:
    return (
        f"the CA with SHA-256 {fingerprint} has the key of a client CA that may sign for anyone: it is not limited to "
        f"{bootstrapper.USER}, and its credentials stay good without this ConfigMap; take it out of "
        f"{client_ca_bundle.NAMESPACE}/{client_ca_bundle.NAME} and of every other source"
    )
