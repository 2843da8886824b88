# SPDX-License-Identifier: Apache-2.0
"""`handfast serve ROLE`: one role in the foreground, until a signal stops it. It does not restart anything.

A role that `handfast up` started has the hidden flags: its listening socket and its tie to the supervisor.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from handfast.assembly import config
from handfast.cli import (
    machine_flags,
    output,
    roles,
    serve_destination,
    serve_identity,
    serve_injector,
    serve_machine_config,
    serve_mesh_accounts,
    settings,
    signing_flags,
    supervised,
)
from handfast.datadir import layout
from handfast.runtime import addresses, clock, files

if TYPE_CHECKING:
    from handfast.assembly import apiserver


class _Roles(click.Group):
    """The roles. A list of roles is refused, with words of its own."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if "," in cmd_name:
            raise output.Usage(
                f'several roles in one process are not supported: "{cmd_name}"',
                hint="start one process per role, or run `handfast up`, which keeps them all running",
            )
        return super().get_command(ctx, cmd_name)


@click.group(name="serve", cls=_Roles, short_help="Run one role in the foreground.")
def command() -> None:
    """Run one role in the foreground, until SIGTERM or Ctrl-C stops it."""


@contextlib.contextmanager
def _owned(place: layout.Layout, tie: int | None) -> Iterator[layout.Layout]:
    """The directory as this process's own; a supervised child shares its supervisor's ownership."""
    if tie is not None:
        yield place
        return
    with files.otherwise(layout.ELSEWHERE):
        files.create_directory(place.root)
        lock = files.lock_directory(place.root)
    try:
        yield place
    finally:
        lock.release()


@command.command(name="apiserver", short_help="The Kubernetes API over HTTPS.")
@settings.directory_option(roles.DIRECTORY)
@settings.config_option
@settings.setting_options("listen", "advertise", "store", "logLevel", *settings.APISERVER)
@click.option(
    "--tls-cert-file",
    type=click.Path(),
    help="Serve with this certificate, and what follows it in the file, instead of the data directory's own.",
)
@click.option("--tls-private-key-file", type=click.Path(), help="The private key of --tls-cert-file.")
@click.option("--listen-fd", type=int, hidden=True, help="A socket that listens already.")
@supervised.option
def apiserver_command(
    directory: str, config_file: str | None, listen_fd: int | None, tie: int | None, **flags: Any
) -> None:
    """Serve the Kubernetes API from a data directory, which is created if needed.

    Its certificates are renewed in time. Files that are replaced are used within seconds.
    """
    tls_files = roles.tls_files(flags.pop("tls_cert_file"), flags.pop("tls_private_key_file"))
    with (
        roles.tied(tie, directory),
        _owned(layout.Layout.at(directory), tie) as place,
        contextlib.ExitStack() as stack,
    ):
        chosen = roles.configuration(place, flags, config_file, tie)
        renew = None
        if listen_fd is None:
            sock = stack.enter_context(addresses.listen(chosen.listen, "--listen"))
            bound = addresses.bound(sock, chosen.listen)
            _prepare(place, bound, chosen)
            renew = functools.partial(_renew, place, bound, chosen)
            # From here on it is the server's to close.
            listen_fd = sock.detach()
        from handfast.apiserver import limits
        from handfast.assembly import apiserver, guard, stores
        from handfast.cli import foreground

        options = apiserver.ApiServerOptions(
            directory=str(place.root),
            listen=None,
            listen_fd=listen_fd,
            advertise=tuple(str(one) for one in chosen.advertise),
            store=stores.named(place, chosen.store),
            etcd=stores.access(chosen),
            limits=limits.Limits(lifted=chosen.unsafe_lift_limits),
            guard=guard.GuardOptions(
                bootstrap_tokens=chosen.enable_bootstrap_token_auth,
                anonymous_from=chosen.anonymous_from,
                issuer=chosen.service_account_issuer,
                audiences=chosen.api_audiences,
                max_token_seconds=chosen.service_account_max_token_seconds,
                node_recovery_window=chosen.node_recovery_window,
            ),
            audit=_audit(place, chosen),
            tls_files=tls_files,
            proxy_protocol_from=chosen.proxy_protocol_from,
        )
        foreground.run(apiserver.run(options, renew), chosen.log_level)


@command.command(name="controllers", short_help="The controllers, against any Kubernetes API.")
@settings.directory_option(roles.DIRECTORY)
@settings.config_option
@click.option("--kubeconfig", type=click.Path(), help="How to reach the API.  [default: controllers.conf of --dir]")
@settings.setting_options(
    *("advertise", "adminListen", "controllers", "leaderElect", "logLevel", "ledgerRetentionDays", "proxyProtocolFrom"),
    *("protectLivingNodes", "joinWithin"),
    *config.SIGNING,
)
@signing_flags.options
@machine_flags.options
@click.option(
    "--client-ca-file-out",
    type=click.Path(),
    default="",
    help="For another API server: the controller clientca keeps the client CAs in this file, which is there already.",
)
@click.option(
    "--print-manifest",
    is_flag=True,
    help="Print what these controllers need in a cluster with another API server, and start nothing.",
)
@supervised.sockets_option
@supervised.option
def controllers_command(
    directory: str,
    config_file: str | None,
    kubeconfig: str | None,
    client_ca_file_out: str,
    print_manifest: bool,
    tie: int | None,
    **flags: Any,
) -> None:
    """Run controllers against the API that a kubeconfig names: Handfast's own, or that of any cluster.

    Addresses given with --advertise are published in the ConfigMap kube-public/cluster-info. Certificates are signed with
    the CA of --dir, or with the files that are named. Without either, no certificate is signed.
    """
    signing_flags.take_older_name(flags)
    machines = machine_flags.taken(flags)
    with roles.tied(tie, directory):
        place = layout.Layout.at(directory)
        chosen = roles.configuration(place, flags, config_file, tie)
        if print_manifest:
            _print_manifest(chosen.controllers)
            return
        from handfast.assembly import controllers
        from handfast.cli import foreground

        work = controllers.run(
            kubeconfig_path=kubeconfig or str(place.controllers_kubeconfig),
            selection=controllers.Selection(
                names=chosen.controllers,
                protect_living_nodes=chosen.protect_living_nodes,
                client_ca_file=client_ca_file_out,
                join_within=chosen.join_within,
                machines=controllers.MachineSource(**machines),
            ),
            admin_options=controllers.AdminOptions(chosen.admin_listen, chosen.proxy_protocol_from),
            leader_elect=chosen.leader_elect,
            service_account_key=place.service_account_key,
            servers=[address.url("https") for address in chosen.advertise],
            root_ca_pem=place.ca_certificate,
            signing=signing_flags.signing(chosen, place),
            clock=clock.SystemClock(),
        )
        foreground.run(work, chosen.log_level)


def _print_manifest(selection: Sequence[str]) -> None:
    """For `kubectl apply --filename -`."""
    from handfast.controllers import names as controller_names
    from handfast.rules import controller_rights

    names = controller_names.chosen(selection)
    documents = controller_rights.documents(names)
    others = controller_rights.unlisted(names)
    if not documents:
        raise output.Usage(
            f"--print-manifest: there is none for {', '.join(others)}: every cluster has its own",
            hint=f"choose from: --controllers {','.join(controller_rights.RIGHTS)}",
        )
    output.result("---\n" + "\n---\n".join(output.document(each, "yaml") for each in documents))
    if others:
        output.note(
            f"nothing is printed for {', '.join(others)}, since every cluster has its own: "
            f"start with --controllers {','.join(name for name in names if name not in others)}; "
            f"{', '.join(controller_names.opt_in_aliases())} run only where they are named"
        )


def _audit(place: layout.Layout, chosen: config.Configuration) -> apiserver.AuditOptions | None:
    from handfast.assembly import apiserver

    path = chosen.audit_log_path
    if path == "none":
        return None
    return apiserver.AuditOptions(
        path=path if path == "-" else str(place.root / path),
        max_mib=chosen.audit_log_max_mib,
        max_files=chosen.audit_log_max_files,
        max_days=chosen.audit_log_max_days,
    )


def _prepare(
    place: layout.Layout, server: addresses.Address, chosen: config.Configuration, *, again: bool = False
) -> dict[str, Any]:
    """What was done, after how many seconds there is something to do again, and what the operator should know."""
    from handfast.datadir import preparation

    now = clock.SystemClock().now()
    done = preparation.prepare(
        place,
        server=server,
        advertise=chosen.advertise,
        store=chosen.store,
        settings=config.template(),
        machine_config=chosen.machine_config_listen if chosen.machines else None,
        mesh=chosen.mesh,
        now=now,
        again=again,
    )
    seconds, warning = preparation.outlook(place, now)
    return {"done": done, "seconds": seconds, "warning": warning}


def _renew(place: layout.Layout, server: addresses.Address, chosen: config.Configuration) -> float:
    """Look after the directory of a server that runs; in how many seconds to do so again."""
    return float(_prepare(place, server, chosen, again=True)["seconds"])


@command.command(name="prepare", hidden=True)
@settings.directory_option(roles.DIRECTORY)
@settings.setting_options("listen", "advertise", "store", "machines", "machineConfigListen", "mesh")
@click.option("--again", is_flag=True, hidden=True, help="The directory is being served.")
@supervised.option
def prepare_command(directory: str, again: bool, tie: int | None, **flags: Any) -> None:
    """Make the data directory of `handfast up` whole, and print what was done."""
    with supervised.tied(tie), _owned(layout.Layout.at(directory), tie) as place:
        chosen = settings.from_flags(flags)
        output.result(json.dumps(_prepare(place, chosen.listen, chosen, again=again)))


for each in (serve_machine_config, serve_identity, serve_destination, serve_injector, serve_mesh_accounts):
    command.add_command(each.command)
