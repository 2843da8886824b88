# SPDX-License-Identifier: Apache-2.0
"""How the services of the mesh log in: a kubeconfig for each account, which names the file of its token and that of the CA.

It makes no token: the API server does, and `client.account_tokens` asks it.

1. The directory is its owner's alone, and so is every file in it.
2. A kubeconfig leads to the CA file of the data directory, so that a rotation of the CA needs no other one.
3. The certificate that the identity service logged in with before is removed: nothing uses it, and it would live for months.
"""

from __future__ import annotations

from handfast.bootstrap import kubeconfig
from handfast.datadir import own_certificates as own
from handfast.rules import user_names
from handfast.rules.mesh import control_plane
from handfast.runtime import files


def prepare(work: own.Work, server: str, *, again: bool = False) -> None:
    """Make the directory and its kubeconfigs, or make them right; `again`: somebody may be writing there."""
    place = work.place
    # 1. the owner's alone
    files.create_directory(place.mesh)
    files.require_own_directory(place.mesh)
    if not again:
        files.remove_leftovers(place.mesh)
    for account in control_plane.ACCOUNTS:
        path, text = place.mesh_kubeconfig(account), _document(account, server).encode()
        if not path.exists():
            work.write(path, text, "created")
        elif files.read_private(path, limit=own.MAX_BYTES) != text:
            work.write(path, text, "renewed")
    former = place.former_identity_kubeconfig
    # 3. nothing uses it
    if former.exists():
        former.unlink()
        work.done.append((former.name, "removed"))


def _document(account: str, server: str) -> str:
    user = user_names.service_account_user(control_plane.NAMESPACE, account)
    return kubeconfig.render(
        kubeconfig.Kubeconfig(
            context=f"{account}@{own.CLUSTER}",
            # 2. the file of the CA
            cluster=kubeconfig.Cluster(name=own.CLUSTER, server=server, certificate_authority="../pki/ca.crt"),
            user=kubeconfig.User(name=user, token_file=f"{account}.token"),
        )
    )
