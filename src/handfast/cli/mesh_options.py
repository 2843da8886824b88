# SPDX-License-Identifier: Apache-2.0
"""Options that the commands of the mesh share. It loads no rules: the command line is to start fast."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import click

# The same as in `rules.mesh.control_plane`, which is imported only where it is needed. A test compares them.
NAMESPACE: Final = "linkerd"

control_plane_option = click.option(
    "--control-plane-namespace",
    "namespace",
    metavar="NAME",
    default=NAMESPACE,
    show_default=True,
    help="Where the control plane is.",
)


def ip(_context: click.Context, parameter: click.Parameter, text: str | None) -> str | None:
    """The value of an option that is an IP address; where it is not given, its default."""
    try:
        return str(ipaddress.ip_address(text)) if text else text
    except ValueError:
        raise click.BadParameter(f"{text!r} is not an IP address", param=parameter) from None


def ports(_context: click.Context, parameter: click.Parameter, texts: Sequence[str]) -> list[tuple[int, int]]:
    """The ports that clients call, each with that of the application."""
    from handfast.rules.mesh import proxy_listening

    try:
        return proxy_listening.parse_ports(texts)
    except ValueError as error:
        raise click.BadParameter(str(error), param=parameter) from None
