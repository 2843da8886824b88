# SPDX-License-Identifier: Apache-2.0
"""The flags of `handfast serve controllers` that say which Machines count: OpenShift's own names for them. Nothing is followed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from handfast import errors
from handfast.cli import output

_F = TypeVar("_F", bound=Callable[..., Any])


def options(function: _F) -> _F:
    """Adds the flags; the command takes them out with `taken`."""
    for option in (
        click.option(
            "--machine-namespace", default="", help="Machines of this namespace alone count.  [default: those of all]"
        ),
        click.option(
            "--management-cluster-kubeconfig",
            type=click.Path(),
            default="",
            help="How to reach the cluster that the Machines are on.  [default: the one of the nodes]",
        ),
        click.option(
            "--api-group-version",
            metavar="GROUP[/VERSION]",
            multiple=True,
            help="Which Machines count: machine.openshift.io, cluster.x-k8s.io.  May be given several times.  "
            "[default: machine.openshift.io]",
        ),
    ):
        function = option(function)
    return function


def taken(flags: dict[str, Any]) -> dict[str, Any]:
    """What the flags say, as arguments of `assembly.controllers.MachineSource`, taken out of those of the command."""
    from handfast.rules.machines import group_versions

    texts = flags.pop("api_group_version")
    try:
        groups = group_versions.parse(texts)
    except errors.Refused as refused:
        raise output.Usage(
            f"--api-group-version: {refused.message}", reason=refused.reason, hint=refused.hint
        ) from None
    return {
        "groups": groups,
        "namespace": flags.pop("machine_namespace"),
        "kubeconfig": flags.pop("management_cluster_kubeconfig"),
    }
