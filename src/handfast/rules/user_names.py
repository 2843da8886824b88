# SPDX-License-Identifier: Apache-2.0
"""What the names of users and groups say, and how they are spelt: nodes, service accounts, the groups the server gives.

It reads names that an authenticator vouched for; it neither authenticates anybody nor says what they may do.

1. A node is a user `system:node:NAME` **and** in the group `system:nodes`. Either alone says nothing.
2. A service account is a user `system:serviceaccount:NAMESPACE:NAME`, neither of them empty, with no further colon. Where
   the name could be anybody's choice, the group `system:serviceaccounts` is asked for, too.
3. By which credential a user was authenticated is said in its extra, as the server saw it: the id of a token, or the SHA-256 of a
   certificate.
"""

from __future__ import annotations

from typing import Final

from handfast.pki import names

# Everybody is in one of these, and only the server itself puts them there.
AUTHENTICATED: Final = "system:authenticated"
UNAUTHENTICATED: Final = "system:unauthenticated"

NODE_PREFIX: Final = "system:node:"
NODES: Final = "system:nodes"
SERVICE_ACCOUNT_PREFIX: Final = "system:serviceaccount:"
SERVICE_ACCOUNTS: Final = "system:serviceaccounts"

# Of nodes whose certificate expired while they were off; only the server itself puts them there.
NODE_RECOVERY_PREFIX: Final = "system:node-recovery:"
NODE_RECOVERY: Final = "system:node-recovery"

# 3. where the id of a credential is in a user's extra, and how the two kinds of it begin
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"
TOKEN_ID_PREFIX: Final = "JTI="  # noqa: S105 - the beginning of an id
CERTIFICATE_ID_PREFIX: Final = "X509SHA256="

CONTROLLERS: Final = "system:kube-controller-manager"
MACHINE_CONFIG_SERVER: Final = "system:machine-config-server"
# The account of the mesh's identity service, where the mesh is in its usual namespace.
MESH_IDENTITY: Final = "system:serviceaccount:linkerd:linkerd-identity"


def node(user: str, groups: tuple[str, ...]) -> str | None:
    """The node a caller is: None if it is no node, empty if it is one that does not say which."""
    # 1. both the name and the group
    if not user.startswith(NODE_PREFIX) or NODES not in groups:
        return None
    return user.removeprefix(NODE_PREFIX)


def node_named(user: str) -> str:
    """The node that a user name names, whoever bears it; empty if it names none."""
    return user.removeprefix(NODE_PREFIX) if user.startswith(NODE_PREFIX) else ""


def node_user(name: str) -> str:
    """The user that a node is."""
    return NODE_PREFIX + name


def node_subject(name: str) -> names.Subject:
    """The subject of a node's certificates, which makes it that user in that group."""
    return names.Subject(common_name=node_user(name), organizations=(NODES,))


def service_account(user: str) -> tuple[str, str] | None:
    """Namespace and name, if a user name is a service account's."""
    # 2. namespace and name, and nothing more
    if not user.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, name = user.removeprefix(SERVICE_ACCOUNT_PREFIX).partition(":")
    return (namespace, name) if colon and namespace and name and ":" not in name else None


def service_account_user(namespace: str, name: str) -> str:
    """The user that a service account is."""
    return f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, str]:
    """The groups of every service account of the namespace, without `system:authenticated`."""
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")
