# SPDX-License-Identifier: Apache-2.0
"""`handfast serve identity`: the identity service of the mesh, in the foreground. What it answers is in `mesh.identity`."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from handfast.cli import issuer_files, mesh_options, roles, settings, supervised
from handfast.datadir import layout
from handfast.rules.mesh import control_plane
from handfast.runtime import clock
from handfast.wire import extra

if TYPE_CHECKING:
    from handfast.mesh.identity import sources


@click.command(name="identity", short_help="Certificates for workloads of the mesh, against any Kubernetes API.")
@settings.directory_option(roles.DIRECTORY)
@settings.config_option
@click.option(
    "--kubeconfig",
    type=click.Path(),
    help="How to reach the API, as the account of the service.  [default: mesh/linkerd-identity.conf of --dir]",
)
@mesh_options.control_plane_option
@click.option("--trust-anchors", type=click.Path(), help="Trust anchors in a file instead of linkerd-trust-anchor.")
@click.option("--issuer-cert", type=click.Path(), help="The issuer in a file instead of linkerd-identity-signing.")
@click.option("--issuer-key", type=click.Path(), help="Its private key, PEM or DER, without a passphrase.")
@settings.setting_options("identityListen", "identityAdminListen", "logLevel")
@roles.pod_ip_option
@supervised.sockets_option
@supervised.option
def command(
    directory: str,
    config_file: str | None,
    kubeconfig: str | None,
    namespace: str,
    pod_ip: str | None,
    trust_anchors: str | None,
    issuer_cert: str | None,
    issuer_key: str | None,
    tie: int | None,
    **flags: Any,
) -> None:
    """Answer workloads that show the token of their service account with a certificate in its name.

    It speaks gRPC, as Linkerd's identity service does: in plaintext on loopback, and elsewhere with TLS 1.3 and a certificate
    that it has from itself. The issuer, the trust anchors and the settings are those that `handfast mesh install` has stored;
    what changes there is taken up while it runs. With --trust-anchors, --issuer-cert and --issuer-key they are three files instead,
    which are followed likewise; the settings are stored always.
    """
    extra.require()
    with roles.tied(tie, directory):
        place = layout.Layout.at(directory)
        chosen = roles.configuration(place, flags, config_file, tie)
        from handfast.assembly import identity
        from handfast.cli import foreground

        options = identity.Options(
            kubeconfig=kubeconfig or str(place.mesh_kubeconfig(control_plane.IDENTITY)),
            listen=roles.in_pod(chosen.identity_listen, pod_ip),
            beside_loopback=pod_ip is not None,
            admin_listen=chosen.identity_admin_listen,
            namespace=namespace,
            paths=_paths({"trust_anchors": trust_anchors, "issuer_cert": issuer_cert, "issuer_key": issuer_key}),
        )
        foreground.run(identity.run(options, clock.SystemClock()), chosen.log_level)


def _paths(typed: Mapping[str, str | None]) -> sources.Paths | None:
    from handfast.mesh.identity import sources

    chosen = issuer_files.chosen(typed)
    if chosen is None:
        return None
    anchors, certificate, key = map(pathlib.Path, chosen)
    return sources.Paths(certificate, key, anchors)
