# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh`: identities for workloads. A tree of commands only."""

from __future__ import annotations

import click

from handfast.cli import (
    mesh_anchors,
    mesh_check,
    mesh_edges,
    mesh_explain,
    mesh_inject,
    mesh_install,
    mesh_proxy,
    mesh_proxy_iptables,
    mesh_revoke,
    mesh_run,
)


@click.group(name="mesh", short_help="Give workloads an identity that their peers verify.")
def command() -> None:
    """Give workloads a cryptographic identity that is bound to their service account."""


COMMANDS = (
    mesh_install.install,
    mesh_check.check,
    mesh_inject.inject,
    mesh_inject.uninject,
    mesh_explain.explain,
    mesh_edges.edges,
    mesh_revoke.revoke,
    mesh_anchors.command,
    mesh_run.run,
    mesh_proxy.command,
)
for each in COMMANDS:
    command.add_command(each)
mesh_proxy.command.add_command(mesh_proxy_iptables.iptables)
