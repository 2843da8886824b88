# SPDX-License-Identifier: Apache-2.0
"""`handfast serve machine-config`: the machine-config server, in the foreground. What it answers is in `machines`.

As a child of `handfast up` it has the hidden flags: its listening sockets and its tie to the supervisor.
"""

from __future__ import annotations

import contextlib
import math
import pathlib
from typing import TYPE_CHECKING, Any

import click

from handfast.assembly import config
from handfast.cli import output, roles, settings, supervised
from handfast.datadir import layout
from handfast.runtime import addresses, clock

if TYPE_CHECKING:
    from handfast.assembly import machine_config


@click.command(name="machine-config", short_help="Configurations for machines that prove who they are.")
@settings.directory_option(roles.DIRECTORY)
@settings.config_option
@click.option("--kubeconfig", type=click.Path(), help="How to reach the API.  [default: machine-config.conf of --dir]")
@settings.setting_options(*config.MACHINE_CONFIG, "logLevel", *settings.MACHINE_CONFIG_SERVER)
@click.option(
    "--tls-cert-file",
    type=click.Path(),
    help="Serve with this certificate, and what follows it in the file, instead of the data directory's own.",
)
@click.option("--tls-private-key-file", type=click.Path(), help="The private key of --tls-cert-file.")
@click.option(
    "--client-ca-file",
    type=click.Path(),
    help="The CA of the nodes' certificates.  [default: pki/ca.crt of --dir, else the CA of --kubeconfig]",
)
@click.option(
    "--bootstrap-dir",
    type=click.Path(),
    help="Before there is a cluster: serve the masters' configuration from the files of this directory, and ask no API.",
)
@click.option(
    "--print-manifest",
    is_flag=True,
    help="Print the rights that it needs in a cluster with another API server, and start nothing.",
)
@supervised.sockets_option
@supervised.option
def command(
    directory: str,
    config_file: str | None,
    kubeconfig: str | None,
    bootstrap_dir: str | None,
    print_manifest: bool,
    tie: int | None,
    **flags: Any,
) -> None:
    """Serve configurations, as Ignition, to machines that prove who they are.

    A machine shows its own secret or that of its pool, as `handfast machine ignition` makes them; a node shows its certificate; or its
    address is in a network that you name. Anybody else gets 401. Every request for a configuration is in the
    audit log.
    """
    if print_manifest:
        _print_manifest()
        return
    if kubeconfig is not None and bootstrap_dir is not None:
        raise output.Usage(
            "--kubeconfig and --bootstrap-dir do not go together", hint="name where configurations come from"
        )
    files = _Files.of(flags)
    with roles.tied(tie, directory), contextlib.ExitStack() as stack:
        place = layout.Layout.at(directory)
        chosen = roles.configuration(place, flags, config_file, tie)
        sock = stack.enter_context(addresses.listen(chosen.machine_config_listen, "--machine-config-listen"))
        from handfast.assembly import machine_config
        from handfast.cli import foreground

        doors, audit_file = files.doors(place, chosen, own=kubeconfig is None), _audit(place, chosen)
        if bootstrap_dir is not None:
            where = pathlib.Path(bootstrap_dir).absolute()
            work = machine_config.run_before_the_cluster(where, doors, sock, audit_file, clock.SystemClock())
        else:
            way = kubeconfig or str(place.machine_config_kubeconfig)
            work = machine_config.run(way, doors, sock, audit_file, clock.SystemClock())
        foreground.run(work, chosen.log_level)


class _Files:
    """The files that were named."""

    def __init__(self, pair: tuple[str, str] | None, client_ca: str | None) -> None:
        self._pair = pair
        self._client_ca = client_ca

    @classmethod
    def of(cls, flags: dict[str, Any]) -> _Files:
        """Takes its flags out of `flags`: what is left are settings."""
        pair = roles.tls_files(flags.pop("tls_cert_file"), flags.pop("tls_private_key_file"))
        return cls(pair, flags.pop("client_ca_file"))

    def doors(self, place: layout.Layout, chosen: config.Configuration, *, own: bool) -> machine_config.Doors:
        """What the server is opened with; `own`: for the cluster of the data directory."""
        from handfast.assembly import machine_config
        from handfast.rules import networks

        certificate, key = self._pair or (place.machine_config_certificate, place.machine_config_key)
        client_ca = None if self._client_ca is None else pathlib.Path(self._client_ca)
        if client_ca is None and (own or place.ca_certificate.exists()):
            client_ca = place.ca_certificate
        return machine_config.Doors(
            certificate=pathlib.Path(certificate),
            key=pathlib.Path(key),
            client_ca=client_ca,
            networks=networks.Networks.parse(chosen.machine_config_trusted_networks),
            admin_listen=chosen.machine_config_admin_listen,
            proxy_protocol_from=chosen.proxy_protocol_from,
        )


def _audit(place: layout.Layout, chosen: config.Configuration) -> machine_config.AuditFile | None:
    """Its own file beside the API server's: no two processes write one."""
    from handfast.assembly import machine_config
    from handfast.telemetry import rotating

    path = chosen.audit_log_path
    if path == "none":
        return None
    beside = (place.root / path).with_name(place.machine_config_audit.name)
    own = path if path == rotating.STANDARD_OUTPUT else str(beside)
    days = float(chosen.audit_log_max_days or math.inf)
    rotation = rotating.Rotation(chosen.audit_log_max_mib << 20, chosen.audit_log_max_files, days)
    return machine_config.AuditFile(path=own, rotation=rotation)


def _print_manifest() -> None:
    """For `kubectl apply --filename -`."""
    from handfast.rules.machine_config import server_rights

    documents = server_rights.manifest()
    output.result("---\n" + "\n---\n".join(output.document(each, "yaml") for each in documents))
