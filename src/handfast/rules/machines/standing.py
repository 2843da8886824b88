# SPDX-License-Identifier: Apache-2.0
"""Is the bootstrap credential that a request came by still the one that counts? One that was revoked takes its requests along.

To revoke a credential is to delete an object: a ConfigMap for the masters' certificate, a Secret for the workers' token. Requests that
were filed before wait on, and whoever stole the credential may have filed them. It denies nothing, and reads nothing itself.

1. A request by certificate needs one of the ConfigMaps that make the masters' certificate count.
2. A request by a token without an id needs the Secret of the workers' token, or that of their next one: a request does not say which of
   the two it came by.
   The next one counts only if it is for the bootstrap account: a Secret of that name stays when nothing is to be replaced.
3. That object was not created after the request: else it was deleted in between, and made anew. Objects that are being deleted are gone.
4. A token with an id is one machine's own: `machines.proofs` looks at its Secret, where the operator asks for that.
5. An object that may not be read is not known to be there: nothing is approved by it.
6. Other identities, which the operator lists, have no such objects.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_standing.py |
|---|---|---|---|---|
| a thief | a request filed with the masters' certificate, since revoked | be approved when its Machine comes | 1 | test_a_credential_that_was_revoked_takes_its_requests_along |
| … | a request filed with the workers' token, which was made anew | … | 3 | test_a_credential_that_was_made_anew_does_not_bring_old_requests_back |
| who may make Secrets there | a Secret that is only called like the next token | have old requests stand | 2 | test_a_secret_that_is_only_called_so_lets_no_request_stand |

Not stopped: a request filed with a token that is being replaced after a roll-out, once the next one is there. The operator who knows of a
thief revokes at once. Nor is a request stopped that was filed in the very second in which its credential was revoked and made anew, or
with a signer that was taken out of a ConfigMap that stayed. `handfast machine credentials revoke` denies the requests that are open.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Final

import msgspec

from handfast.api import objects
from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper
from handfast.rules.tokens import service_accounts

REVOKED: Final = "BootstrapCredentialGone"
FORBIDDEN: Final = "BootstrapCredentialsForbidden"
# The name of the check.
STANDS: Final = "credential stands"

# Kind, namespace and name.
Place = tuple[str, str, str]
TRUST: Final[tuple[Place, ...]] = tuple(("ConfigMap", *row) for row in bootstrapper.CONFIG_MAPS)
TOKEN: Final[tuple[Place, ...]] = tuple(("Secret", bootstrapper.NAMESPACE, name) for name in bootstrapper.TOKEN_SECRETS)
PLACES: Final = (*TRUST, *TOKEN)


class Objects(msgspec.Struct, frozen=True):
    """When those that are there were created, and why others cannot be read."""

    created: Mapping[Place, datetime.datetime] = msgspec.field(default_factory=dict)
    refusals: Mapping[Place, str] = msgspec.field(default_factory=dict)


def instant(created: str | None, deleting: str | None) -> datetime.datetime | None:
    """When an object was created, by its metadata; None: it does not count (3.)."""
    try:
        return None if deleting else objects.parse_timestamp(created or "")
    except ValueError:
        return None


def counts(place: Place, annotations: Mapping[str, str]) -> bool:
    """Whether an object at this place can be one by which requests stand (2)."""
    is_next = place[2] == bootstrapper.NEXT_TOKEN_SECRET
    return not is_next or annotations.get(service_accounts.ACCOUNT_NAME) == bootstrapper.ACCOUNT


def step(facts: kubelet.Facts, created: datetime.datetime, known: Objects) -> approval.Step:
    """Whether the credential of a request that was created at this instant still stands."""
    places, word = _needs(facts)
    if not places:
        return approval.Step(kubelet.Check(STANDS, True, word))
    # 3. older than the request
    standing = [
        place
        for place in places
        if known.created.get(place, datetime.datetime.max.replace(tzinfo=datetime.UTC)) <= created
    ]
    if standing:
        return approval.Step(
            kubelet.Check(STANDS, True, f"{word}, by {_title(standing[0])}, which is older than the request")
        )
    refused = [f"{_title(place)}: {known.refusals[place]}" for place in places if place in known.refusals]
    # 5. what may not be read is not known to be there
    if refused:
        return _forbidden(facts, f"{word}, and cannot be looked up: {'; '.join(refused)}")
    return _revoked(facts, f"{word}, and {' and '.join(_state(place, known) for place in places)}")


def _needs(facts: kubelet.Facts) -> tuple[tuple[Place, ...], str]:
    # 6. only the one identity has such objects
    if facts.username != bootstrapper.USER:
        return (), "another identity than the bootstrapper has no object to stand on"
    ids = facts.extra.get(user_names.CREDENTIAL_ID, ())
    # 1. a certificate
    if any(each.startswith(user_names.CERTIFICATE_ID_PREFIX) for each in ids):
        return TRUST, "it came by the masters' certificate"
    # 4. a token of one machine
    if ids:
        return (), "it came by a token with an id, which is one machine's"
    # 2. the workers' token
    return TOKEN, "it came by the workers' token"


def _title(place: Place) -> str:
    kind, namespace, name = place
    return f"{kind} {namespace}/{name}"


def _state(place: Place, known: Objects) -> str:
    created = known.created.get(place)
    return f"{_title(place)} is " + ("not there" if created is None else f"of {objects.timestamp(created)}, after it")


def _forbidden(facts: kubelet.Facts, compared: str) -> approval.Step:
    change = (
        "apply what `handfast serve controllers --print-manifest` prints, which has the right to list and watch these objects; or "
        f"{approval.by_hand(facts)}"
    )
    waits_for = frozenset({approval.CREDENTIAL, approval.CLOCK})
    return approval.Step(kubelet.Check(STANDS, False, compared), FORBIDDEN, waits_for, change)


def _revoked(facts: kubelet.Facts, compared: str) -> approval.Step:
    change = f"have the kubelet ask again, with a credential that counts; or {approval.by_hand(facts)}"
    waits_for = frozenset({approval.CREDENTIAL})
    return approval.Step(kubelet.Check(STANDS, False, f"{compared}: it was revoked"), REVOKED, waits_for, change)
