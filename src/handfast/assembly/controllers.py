# SPDX-License-Identifier: Apache-2.0
"""The controllers role, put together: which controllers there are, and one process of them.

It runs until it is cancelled and then drains. It handles no signals and configures no log: whoever runs it does. What
each controller does is in its own module.

It is ready when every controller has seen what there is, the API server answers, and forbids nothing that is followed. One that hangs leaves its connections
open, and a watch that is quiet may be quiet for minutes, so that it is also asked for nothing but an answer from time to time.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import structlog

from handfast.client import api, connection, followed_files, hearing, machine_inventory, transport
from handfast.controllers import names
from handfast.controllers import role as role_module
from handfast.controllers.certificates import (
    approver,
    cleaner,
    ledger_retention,
    requests,
)
from handfast.controllers.certificates import (
    authorities as signing_authorities,
)
from handfast.controllers.certificates import (
    signer as csr_signer,
)
from handfast.controllers.cluster import (
    disruption,
    endpoint_mirroring,
    endpoint_slices,
    event_ttl,
    garbage_collector,
    namespace,
    node_lifecycle,
    pod_garbage,
    resource_quota,
    role_aggregation,
    root_ca,
    service_account_tokens,
    service_accounts,
)
from handfast.controllers.cluster import endpoints as classic_endpoints
from handfast.controllers.joining import bootstrap_signer, cluster_info, token_cleaner
from handfast.controllers.machines import approver as machine_approver
from handfast.controllers.machines import (
    bootstrap_token,
    client_ca,
    credential_rollout,
    machine_config_pools,
    machine_config_render,
    management,
    node_link,
)
from handfast.controllers.machines import settings as machine_settings
from handfast.pki import jwt, keys
from handfast.rules import networks
from handfast.rules.machines import group_versions, join_window
from handfast.runtime import addresses, collector, files, loop_time, proxied, tasks
from handfast.runtime import clock as clocks
from handfast.serving import admin
from handfast.telemetry import health, metrics

_log = structlog.get_logger("handfast.controllers")


class Signing(msgspec.Struct, frozen=True, kw_only=True):
    """With which files each signer signs certificates, for how long at most, and how long the ledger of them is kept."""

    files: Mapping[str, signing_authorities.Files]
    longest: datetime.timedelta = csr_signer.DURATION
    ledger_days: int = ledger_retention.DAYS


class MachineSource(msgspec.Struct, frozen=True, kw_only=True):
    """Which Machines count; and the kubeconfig of the cluster that they are on, where it is another than the nodes' own."""

    groups: tuple[group_versions.GroupVersions, ...] = group_versions.DEFAULT
    namespace: str = ""
    kubeconfig: str = ""

    @property
    def options(self) -> machine_inventory.Options:
        return machine_inventory.Options(groups=self.groups, namespace=self.namespace)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Which controllers run; whether names of nodes that are alive are kept from everybody else; how long machines may take to join.

    `client_ca_file` is where another API server reads its client CAs from.
    """

    names: Sequence[str] = ("*",)
    protect_living_nodes: bool = True
    join_within: datetime.timedelta = join_window.DEFAULT
    machines: MachineSource = MachineSource()
    client_ca_file: str = ""

    @property
    def approves_machines(self) -> bool:
        """Whether the machine-approver runs here, so that csrapproving leaves its requests alone."""
        return machine_approver.NAME in names.chosen(self.names)


ORDINARY: Final = Selection()


# Those of services, Pods and limits, which need to be told nothing.
_CLUSTER: Final[Mapping[str, role_module.Build]] = {
    endpoint_slices.NAME: endpoint_slices.build,
    classic_endpoints.NAME: classic_endpoints.build,
    endpoint_mirroring.NAME: endpoint_mirroring.build,
    event_ttl.NAME: event_ttl.build,
    pod_garbage.NAME: pod_garbage.build,
    role_aggregation.NAME: role_aggregation.build,
    resource_quota.NAME: resource_quota.build,
    disruption.NAME: disruption.build,
}


def known(
    root_ca_pem: bytes,
    signer: jwt.Signer | None = None,
    servers: Sequence[str] = (),
    *,
    authorities: signing_authorities.SigningAuthorities | None = None,
    longest: datetime.timedelta = csr_signer.DURATION,
    ledger_days: int = ledger_retention.DAYS,
    selection: Selection = ORDINARY,
    machines: machine_inventory.Options = machine_inventory.DEFAULT,
) -> Mapping[str, role_module.Build]:
    """Every controller by the name that `--controllers` takes; all names are in `controllers.names`.

    Without a key to sign with there are no tokens; without addresses and a CA nothing is said of where the cluster is;
    without a CA to sign with no certificates are signed.
    """
    able: dict[str, role_module.Build] = {}
    feed = requests.Feed()
    followed = functools.partial(machine_settings.follow, join_within=selection.join_within)
    if authorities is not None:
        able[csr_signer.NAME] = functools.partial(csr_signer.build, feed=feed, authorities=authorities, longest=longest)
        # Whoever signs writes the ledger, and sees to it that it does not grow for ever.
        able[ledger_retention.NAME] = functools.partial(ledger_retention.build, days=ledger_days)
    if signer is not None:
        able[service_account_tokens.NAME] = functools.partial(
            service_account_tokens.build, signer=signer, root_ca_pem=root_ca_pem
        )
    if servers and root_ca_pem:
        able[cluster_info.NAME] = functools.partial(cluster_info.build, servers=servers, ca=root_ca_pem)
    return {
        namespace.NAME: namespace.build,
        garbage_collector.NAME: garbage_collector.build,
        service_accounts.NAME: service_accounts.build,
        root_ca.NAME: functools.partial(root_ca.build, root_ca_pem=root_ca_pem),
        **_CLUSTER,
        approver.NAME: functools.partial(
            approver.build,
            feed=feed,
            protect=selection.protect_living_nodes,
            build_other=followed if selection.approves_machines else None,
        ),
        cleaner.NAME: functools.partial(cleaner.build, feed=feed),
        **able,
        bootstrap_signer.NAME: bootstrap_signer.build,
        token_cleaner.NAME: token_cleaner.build,
        node_lifecycle.NAME: node_lifecycle.build,
        client_ca.NAME: functools.partial(client_ca.build, own_cas=root_ca_pem, file_out=selection.client_ca_file),
        bootstrap_token.NAME: bootstrap_token.build,
        node_link.NAME: functools.partial(node_link.build, options=machines),
        machine_approver.NAME: functools.partial(
            machine_approver.build,
            feed=feed,
            protect=selection.protect_living_nodes,
            join_within=selection.join_within,
            machines=machines,
            kubelet_ca=root_ca_pem,
        ),
        machine_config_render.NAME: functools.partial(machine_config_render.build, servers=servers, ca=root_ca_pem),
        machine_config_pools.NAME: machine_config_pools.build,
        credential_rollout.NAME: credential_rollout.build,
    }


class AdminOptions(msgspec.Struct, frozen=True):
    """Where health and metrics are served, and the balancers in front of it, as an operator names them."""

    listen: addresses.Address
    proxy_protocol_from: str = "none"


def _doors(link: transport.Transport, role: role_module.Role, options: AdminOptions) -> admin.Admin:
    return admin.Admin(
        health.Health(ready={"apiserver": lambda: hearing.unheard(link), "controllers": role.not_ready}),
        proxied.Proxied(networks.Networks.parse(options.proxy_protocol_from)),
    )


async def run(
    *,
    kubeconfig_path: str,
    selection: Selection | None = None,
    admin_options: AdminOptions,
    leader_elect: bool,
    root_ca_pem: followed_files.Material,
    service_account_key: followed_files.Material = None,
    servers: Sequence[str] = (),
    signing: Signing | None = None,
    clock: clocks.Clock,
) -> None:
    """Run the selected controllers until cancelled; `*` where nothing is selected. Without `root_ca_pem` the kubeconfig's own CA is published.

    `servers` are the URLs that newcomers are told; without any, the ConfigMap that tells them is left to others. Without
    `signing` nothing is signed. Credentials and files that change are taken up while it runs.
    """
    selected = selection or ORDINARY
    credentials = followed_files.Credentials(kubeconfig_path, clock)
    with files.otherwise("name another kubeconfig with --kubeconfig"):
        place = connection.load(kubeconfig_path)
    fleet = management.Management(selected.machines.kubeconfig, selected.machines.options, clock)
    # It follows its files itself, so that a new CA counts from the next certificate on.
    signed_by = None if signing is None else signing_authorities.SigningAuthorities(signing.files, clock)

    def builds() -> Mapping[str, role_module.Build]:
        key = followed_files.content(service_account_key, private=True)
        signer = None if key is None else jwt.Signer(keys.private_from_pem(key))
        return known(
            followed_files.content(root_ca_pem) or place.ca_pem or b"",
            signer,
            servers,
            authorities=signed_by,
            longest=csr_signer.DURATION if signing is None else signing.longest,
            ledger_days=ledger_retention.DAYS if signing is None else signing.ledger_days,
            selection=selected,
            machines=fleet.options,
        )

    wanted = names.chosen(selected.names, tuple(builds()))
    if not (followed_files.content(root_ca_pem) or place.ca_pem):
        _log.warning("no CA is known, so none is published", controller=root_ca.NAME)
        wanted = [name for name in wanted if name != root_ca.NAME]
    link = transport.Transport(place, clock=clock)
    client = api.Client(link)
    role = role_module.Role(client, clock, lambda: [build for name, build in builds().items() if name in wanted])
    doors = _doors(link, role, admin_options)
    try:
        with addresses.listen(admin_options.listen, "--admin-listen") as listener:
            await doors.start(listener)
            collector.calm()
            async with (
                tasks.Group("role") as beside,
                followed_files.followed(credentials, link, (root_ca_pem, service_account_key), role.remake, clock),
                fleet.followed(),
            ):
                # By the machine's own clock, whichever the controllers have: it is about this process.
                beside.start(
                    loop_time.lateness(clocks.SystemClock(), metrics.process_lateness().observe), name="loop-lateness"
                )
                beside.start(hearing.keep_asking(link, clock), name="apiserver")
                await (role.take_turns() if leader_elect else role.work())
    finally:
        await doors.stop()
        await link.close()
