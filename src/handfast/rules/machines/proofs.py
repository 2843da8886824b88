# SPDX-License-Identifier: Apache-2.0
"""Does the very machine ask? Two proofs that an operator can ask for, beside the seven checks: from where, and with what.

The shared credential says that somebody has it, and not which machine asks: whoever has it and knows the name of a Machine that is
just joining may be the faster one. Each check is a step of `machines.approval`. It fetches nothing.

`sourceAddress: true`:
1. The API server stamped an address on the request (`machines.source_address`). Another API server stamps none.
2. It is an InternalIP or ExternalIP of the Machine.
3. No other Machine has that address. Where several machines are behind one address, it says nothing of any of them.

`credential: per-machine`:
4. The request was made with a token that has an id: neither a certificate nor the shared token.
5. The Secret that the Machine's token is bound to is there. Whoever deletes it takes back the pending requests, too.
6. It was made for this very Machine, by UID.
7. The id is that of the token.

| who | holding | tries | stopped by | shown in tests/unit/rules/machines/test_proofs.py |
|---|---|---|---|---|
| an intruder | the shared credential, the name of a Machine that is joining | be faster, from elsewhere | 2 | test_an_address_is_that_machines_own |
| … | … | be faster, where tokens are each machine's own | 4 | test_a_credential_is_that_machines_own |
| … | … behind the same NAT or balancer as the machines | come from their address | 3 | test_an_address_is_that_machines_own |
| another machine | the token of its own | a second Machine's name | 7 | test_a_credential_is_that_machines_own |
| a former machine | the token of a Machine that was made anew | its old name | 6 | test_a_credential_is_that_machines_own |
| a thief | a machine's token, revoked after the request was filed | be approved all the same | 5 | test_a_credential_is_that_machines_own |

Not stopped: whoever can send from the Machine's address, such as a balancer on it that tells no client's address. Name balancers
with `--proxy-protocol-from`. On another API server, whoever may act as the bootstrap identity with extra of their choice.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from handfast.rules import user_names
from handfast.rules.certificates import kubelet
from handfast.rules.machines import approval, bootstrapper, inventory, machine_tokens, readmission, source_address

# The names of the checks.
FROM: Final = "source address"
WITH: Final = "credential of the machine"

# Reasons, one for each way to fail.
NO_ADDRESS: Final = "SourceAddressUnknown"
WRONG_ADDRESS: Final = "SourceAddressMismatch"
SHARED_ADDRESS: Final = "SourceAddressShared"
SHARED_CREDENTIAL: Final = "CredentialNotPerMachine"
NO_CREDENTIAL: Final = "CredentialRevoked"
OTHER_CREDENTIAL: Final = "CredentialOfAnotherMachine"
FORBIDDEN: Final = "CredentialsForbidden"

_MACHINE: Final = frozenset({approval.MACHINE, approval.SETTINGS})
_SETTINGS: Final = frozenset({approval.SETTINGS})


def came_from(facts: kubelet.Facts, machine: inventory.Machine, sharing: Sequence[inventory.Machine]) -> approval.Step:
    """Whether a request came from its Machine; `sharing` are the Machines with the stamped address."""
    # 1. an address is stamped
    address = source_address.of(facts.extra)
    if not address:
        compared = (
            "no address is stamped on the request: its API server is not Handfast's, or it was made in another's name"
        )
        change = f"send it to Handfast's API server in its own name, or switch sourceAddress off; or {approval.by_hand(facts)}"
        return _failed(FROM, compared, NO_ADDRESS, _SETTINGS, change)
    # 2. one of the Machine's
    texts = machine.texts(*inventory.IP_TYPES)
    compared = f"it came from {address}, which is to be one of [{', '.join(texts)}] of {machine.title}"
    if kubelet.canonical(address) not in machine.values(*inventory.IP_TYPES):
        change = (
            f"have {machine.title} list {address} if that is its address; if it is a balancer's, name that with "
            f"--proxy-protocol-from; if it is neither, somebody else asks in its name: revoke the bootstrap credential"
        )
        return _failed(FROM, compared, WRONG_ADDRESS, _MACHINE, change)
    # 3. and nobody else's
    others = [each.title for each in sharing if each.key != machine.key]
    if others:
        change = f"leave {address} to one Machine, or ask for credential: per-machine instead of sourceAddress"
        return _failed(FROM, f"{compared}, and is of {', '.join(others)}, too", SHARED_ADDRESS, _MACHINE, change)
    return approval.Step(kubelet.Check(FROM, True, compared))


def came_with(
    facts: kubelet.Facts, machine: inventory.Machine, credential: machine_tokens.Credential | None
) -> approval.Step:
    """Whether a request was made with its Machine's own token; None: there is no Secret of one."""
    # 4. a token with an id
    shown = facts.extra.get(user_names.CREDENTIAL_ID, ())
    anew = f"make one (`handfast machine credentials create --kind worker --machine {shlex.quote(machine.name)}`) and have the machine use it"
    if len(shown) != 1 or not shown[0].startswith(user_names.TOKEN_ID_PREFIX):
        compared = (
            f"the request was made with {shown[0] if shown else 'the shared token'}, which is no token of a machine"
        )
        return _failed(WITH, compared, SHARED_CREDENTIAL, _SETTINGS, f"{anew}; or {approval.by_hand(facts)}")
    # 5. whose Secret is there
    name = f"{bootstrapper.NAMESPACE}/{machine_tokens.secret_name(machine.name)}"
    if credential is None:
        compared = f"the Secret {name}, which a token of {machine.title} is bound to, is not there"
        return _failed(WITH, compared, NO_CREDENTIAL, _SETTINGS, anew)
    # 6. for this very Machine
    if credential.machine_uid != machine.uid:
        compared = (
            f"the Secret {name} is of a Machine {credential.machine} with another UID, made before {machine.title}"
        )
        return _failed(WITH, compared, OTHER_CREDENTIAL, _SETTINGS, f"{anew}, with --replace")
    # 7. that token
    compared = (
        f"the request was made with {shown[0]}, and the token of {machine.title} is {credential.id or 'not issued'}"
    )
    if shown[0] != credential.id:
        change = f"have the machine use its own token; if it has lost it, {anew}, with --replace"
        return _failed(WITH, compared, OTHER_CREDENTIAL, _SETTINGS, change)
    return approval.Step(kubelet.Check(WITH, True, compared))


def unreadable(facts: kubelet.Facts, machine: inventory.Machine, why: str) -> approval.Step:
    """Where the Secret of a Machine's token may not be read: nothing is proven."""
    compared = f"the credential of {machine.title} cannot be read: {why}"
    change = (
        "apply what `handfast serve controllers --print-manifest` prints, which has the right to get Secrets in "
        f"{bootstrapper.NAMESPACE}; or {approval.by_hand(facts)}"
    )
    return _failed(WITH, compared, FORBIDDEN, frozenset({approval.CLOCK}), change)


def recorded(verdict: approval.Verdict, machine: inventory.Machine) -> str:
    """The Machine of an approved request, and how it was known to ask, for the request itself and the ledger."""
    words = {FROM: "its source address", WITH: "its own credential"}
    shown = [words[step.check.name] for step in verdict.steps if step.check.name in words]
    by = f" by {' and '.join(shown)}" if shown else ""
    back = ", readmitted" if readmission.is_readmission(verdict) else ", proven" if by else ""
    return f"{machine.title}{back}{by}"


def _failed(name: str, compared: str, reason: str, waits_for: frozenset[str], change: str) -> approval.Step:
    return approval.Step(kubelet.Check(name, False, compared), reason, waits_for, change)
