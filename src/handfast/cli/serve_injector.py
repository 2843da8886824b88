# SPDX-License-Identifier: Apache-2.0
"""`handfast serve injector`: the webhook of the mesh, in the foreground. What it answers is in `mesh.injector`."""

from __future__ import annotations

from typing import Any

import click

from handfast.cli import mesh_options, roles, settings, supervised
from handfast.datadir import layout
from handfast.rules.mesh import control_plane
from handfast.runtime import clock


@click.command(name="injector", short_help="Proxies for Pods that are created, against any Kubernetes API.")
@settings.directory_option(roles.DIRECTORY)
@settings.config_option
@click.option(
    "--kubeconfig",
    type=click.Path(),
    help="How to reach the API, as the account of the service.  [default: mesh/linkerd-proxy-injector.conf of --dir]",
)
@mesh_options.control_plane_option
@settings.setting_options("injectorListen", "injectorAdminListen", "logLevel")
@supervised.sockets_option
@supervised.option
def command(
    directory: str, config_file: str | None, kubeconfig: str | None, namespace: str, tie: int | None, **flags: Any
) -> None:
    """Answer the API server, which asks for every Pod and Service that is created.

    Pods of namespaces with the annotation linkerd.io/inject: enabled get the mesh's proxy. It speaks TLS 1.3 with a certificate that it makes and
    renews itself, and writes to its webhook whom the API server is to believe. The settings are those that `handfast mesh
    install` has stored; what changes there is taken up while it runs.
    """
    with roles.tied(tie, directory):
        place = layout.Layout.at(directory)
        chosen = roles.configuration(place, flags, config_file, tie)
        from handfast.assembly import injector
        from handfast.cli import foreground

        options = injector.Options(
            kubeconfig=kubeconfig or str(place.mesh_kubeconfig(control_plane.INJECTOR)),
            listen=chosen.injector_listen,
            admin_listen=chosen.injector_admin_listen,
            namespace=namespace,
        )
        foreground.run(injector.run(options, clock.SystemClock()), chosen.log_level)
