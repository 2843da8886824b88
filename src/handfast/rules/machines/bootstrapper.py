# SPDX-License-Identifier: Apache-2.0
"""Who a machine is before it is itself: the service account `node-bootstrapper`, by certificate or by token.

Where its credentials lie, and which requester counts as one that holds them. It makes no credential and verifies none.

1. A requester is a bootstrap identity if its user name is that identity's and its groups are exactly that identity's and
   `system:authenticated`, as sets: a certificate and a token give them in different orders.
2. Whoever comes close is told what differs. A certificate of older installers lacks a group, and is never approved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from handfast.rules import user_names
from handfast.rules.certificates import kubelet

NAMESPACE: Final = "openshift-machine-config-operator"
ACCOUNT: Final = "node-bootstrapper"
USER: Final = user_names.service_account_user(NAMESPACE, ACCOUNT)
# Without `system:authenticated`, which the server adds.
GROUPS: Final = user_names.service_account_groups(NAMESPACE)

# The worker's credential: the Secret that a service account token is kept in.
TOKEN_SECRET: Final = "node-bootstrapper-token"  # noqa: S105 - the name of a Secret
# … and the one that takes its place while the first is being replaced after a roll-out.
NEXT_TOKEN_SECRET: Final = "node-bootstrapper-token-next"  # noqa: S105 - the name of a Secret
TOKEN_SECRETS: Final = (TOKEN_SECRET, NEXT_TOKEN_SECRET)
# The master's credential: its signer, the bundle that the signer is in, and the ConfigMap that makes the bundle count.
SIGNER: Final = "kubelet-bootstrap-kubeconfig-signer"
BUNDLE: Final = "kubelet-bootstrap-kubeconfig-ca-bundle"
CONFIG_MAP: Final = "kubelet-bootstrap-kubeconfig"
BUNDLE_KEY: Final = "ca-bundle.crt"
# Seed 003 says the first, and OpenShift uses the second.
CONFIG_NAMESPACE: Final = "openshift-config"
MANAGED_NAMESPACE: Final = "openshift-config-managed"
CONFIG_MAPS: Final = ((CONFIG_NAMESPACE, CONFIG_MAP), (MANAGED_NAMESPACE, CONFIG_MAP))

# The name of the check, which explanations refer to.
CHECK: Final = "bootstrap identity"


class Identity(msgspec.Struct, frozen=True):
    """A user and its groups, without `system:authenticated`."""

    user: str
    groups: frozenset[str]


NODE_BOOTSTRAPPER: Final = Identity(USER, frozenset(GROUPS))


def check(username: str, groups: Iterable[str], identities: Sequence[Identity] = (NODE_BOOTSTRAPPER,)) -> kubelet.Check:
    """Whether a requester is one of these identities, and if not, what differs from the one that comes closest."""
    have = frozenset(groups)
    named = [identity for identity in identities if identity.user == username]
    if not named:
        users = ", ".join(identity.user for identity in identities)
        return kubelet.Check(CHECK, False, f"{username!r} is to be {users}")
    # 1. the groups, as sets
    wanted = [identity.groups | {user_names.AUTHENTICATED} for identity in named]
    if have in wanted:
        return kubelet.Check(CHECK, True, f"{username} in [{', '.join(sorted(have))}]")
    # 2. what differs from the closest
    closest = min(wanted, key=lambda groups_: len(groups_ ^ have))
    differs = [f"{group} is missing" for group in sorted(closest - have)]
    differs += [f"{group} is one too many" for group in sorted(have - closest)]
    return kubelet.Check(CHECK, False, f"{username} has other groups than the bootstrap identity: {', '.join(differs)}")


def named(username: str, identities: Sequence[Identity] = (NODE_BOOTSTRAPPER,)) -> bool:
    """Whether a user name is that of a bootstrap identity, whatever its groups are."""
    return any(identity.user == username for identity in identities)
