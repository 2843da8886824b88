# SPDX-License-Identifier: Apache-2.0
"""`handfast serve destination`: discovery for the proxies of the mesh, in the foreground. What it answers is in `mesh.destination`."""

from __future__ import annotations

from typing import Any

import click

from handfast.cli import mesh_options, roles, settings, supervised
from handfast.datadir import layout
from handfast.rules.mesh import control_plane
from handfast.runtime import clock
from handfast.wire import extra


@click.command(name="destination", short_help="Discovery for proxies of the mesh, against any Kubernetes API.")
@settings.directory_option(roles.DIRECTORY)
@settings.config_option
@click.option(
    "--kubeconfig",
    type=click.Path(),
    help=f"How to reach the API, as the account of the service.  [default: mesh/{control_plane.CONTROLLER}.conf of --dir]",
)
@mesh_options.control_plane_option
@settings.setting_options("destinationListen", "policyListen", "agentsListen", "destinationAdminListen", "logLevel")
@roles.pod_ip_option
@supervised.sockets_option
@supervised.option
def command(
    directory: str,
    config_file: str | None,
    kubeconfig: str | None,
    namespace: str,
    pod_ip: str | None,
    tie: int | None,
    **flags: Any,
) -> None:
    """Tell proxies where the endpoints of a Service are, and which of them have an identity.

    It speaks gRPC, as Linkerd's destination service does: in plaintext on loopback, and elsewhere with TLS 1.3 and a
    certificate of its account. An endpoint that should have an identity and has none is withheld, never handed out for plaintext.
    """
    extra.require()
    with roles.tied(tie, directory):
        place = layout.Layout.at(directory)
        chosen = roles.configuration(place, flags, config_file, tie)
        from handfast.assembly import destination
        from handfast.cli import foreground

        options = destination.Options(
            kubeconfig=kubeconfig or str(place.mesh_kubeconfig(control_plane.CONTROLLER)),
            listen=roles.in_pod(chosen.destination_listen, pod_ip),
            policy_listen=roles.in_pod(chosen.policy_listen, pod_ip),
            agents_listen=roles.in_pod(chosen.agents_listen, pod_ip),
            admin_listen=chosen.destination_admin_listen,
            beside_loopback=pod_ip is not None,
            namespace=namespace,
        )
        foreground.run(destination.run(options, clock.SystemClock()), chosen.log_level)
