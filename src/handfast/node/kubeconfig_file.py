# SPDX-License-Identifier: Apache-2.0
"""A node's kubeconfig as a file: what it names, the pair in it, and writing the one that leads to the current pair.

Which kubeconfig counts, and when one is written, is decided in `identity`; the format is that of `bootstrap.kubeconfig`.
"""

from __future__ import annotations

import dataclasses
import pathlib

import structlog

from handfast import errors
from handfast.bootstrap import cluster_extension, kubeconfig
from handfast.client import connection as connections
from handfast.pki import keys, pairs, pem
from handfast.runtime import files

_log = structlog.get_logger("handfast.node")


def bare(connection: connections.Connection) -> connections.Connection:
    """The cluster without credentials."""
    return dataclasses.replace(connection, cert_pem=None, key_pem=None, token=None, token_file=None)


def has_token(connection: connections.Connection) -> bool:
    return bool(connection.token or connection.token_file)


def loaded(path: pathlib.Path) -> tuple[connections.Connection | None, errors.Refused | None]:
    """A kubeconfig, or why it cannot be loaded; trouble with the disk is raised."""
    try:
        return connections.load(str(path)), None
    except errors.Refused as refused:
        if refused.reason == "PermissionDenied":
            raise
        return None, refused


def pair_of(connection: connections.Connection) -> pairs.Pair | None:
    """The kubeconfig's certificate and key, which may lie in one file; None where it has none that can be used."""
    if connection.cert_pem is None or connection.key_pem is None:
        return None
    try:
        key = keys.private_from_pem(connection.key_pem, ignoring=[pem.CERTIFICATE])
        beside = [*pem.KEY_LABELS, pem.EC_PARAMETERS]
        return pairs.Pair(tuple(pem.certificates_from_pem(connection.cert_pem, ignoring=beside)), key)
    except errors.Refused as refused:
        _log.warning("the kubeconfig's certificate cannot be used", error=refused.message, reason=refused.reason)
        return None


def write(path: pathlib.Path, cluster: connections.Connection, current: pathlib.Path) -> None:
    """A kubeconfig for this cluster, with all its servers, whose certificate and key are always the current ones."""
    servers = (cluster.server, *cluster.others) if cluster.others or cluster.cluster_id else ()
    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context="default-context",
            cluster=kubeconfig.Cluster(
                name="default-cluster",
                server=cluster.server,
                certificate_authority_data=cluster.ca_pem,
                tls_server_name=cluster.tls_server_name or "",
                beside=cluster_extension.Extension(cluster.cluster_id, servers),
            ),
            user=kubeconfig.User(name="default-auth", client_certificate=str(current), client_key=str(current)),
            namespace="default",
        )
    )
    files.create_directory(path.parent, mode=0o755)
    files.write_atomically(path, text.encode())


def leads_to(path: pathlib.Path, current: pathlib.Path) -> bool:
    """Whether it is one that `write` made, for this pair."""
    try:
        user = kubeconfig.parse(files.read(path, limit=kubeconfig.MAX_BYTES).decode("utf-8")).user
    except (errors.Refused, errors.Unavailable, UnicodeDecodeError):
        return False
    return user is not None and user.client_certificate == str(current)
