# SPDX-License-Identifier: Apache-2.0
"""`handfast mesh proxy iptables`: sends a Pod's connections through its proxy. The flags are those of Linkerd's proxy-init, as a Pod's init container has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import click

from handfast.cli import output

_PORT: Final = click.IntRange(1, 65535)


@click.command(name="iptables", short_help="Send a Pod's connections through its proxy.")
@click.option(
    "--incoming-proxy-port", type=_PORT, default=4143, show_default=True, help="Where inbound connections are sent."
)
@click.option(
    "--outgoing-proxy-port", type=_PORT, default=4140, show_default=True, help="Where outbound connections are sent."
)
@click.option(
    "--proxy-uid", type=int, default=2102, show_default=True, help="The proxy's own user, whose connections stay."
)
@click.option("--inbound-ports-to-ignore", multiple=True, metavar="PORTS", help="Inbound ports that go past the proxy.")
@click.option(
    "--outbound-ports-to-ignore", multiple=True, metavar="PORTS", help="Outbound ports that go past the proxy."
)
@click.option(
    "--subnets-to-ignore",
    multiple=True,
    metavar="CIDRS",
    help="Where inbound connections come from that go past the proxy.",
)
@click.option("--undo", is_flag=True, help="Take the redirect away again.")
@click.option("--dry-run", is_flag=True, help="Print the rules, and change nothing.")
def iptables(**flags: Any) -> None:
    """Redirect the TCP connections of this network to the proxy that runs in it; the proxy learns where they were going.

    It is for the network of one Pod, and needs NET_ADMIN there. Connections of the proxy's own user and on loopback stay as they are. PORTS are ports
    and ranges with commas between, as in 25,8000-8010. A second call changes nothing, and --undo removes what was made, and nothing else.
    """
    from handfast.proxy import redirect
    from handfast.rules.mesh import redirection

    wanted = redirection.Redirection(
        inbound=flags["incoming_proxy_port"],
        outbound=flags["outgoing_proxy_port"],
        user=flags["proxy_uid"],
        skip_inbound=redirection.ports(flags["inbound_ports_to_ignore"]),
        skip_outbound=redirection.ports(flags["outbound_ports_to_ignore"]),
        subnets=redirection.subnets(flags["subnets_to_ignore"]),
    )
    if flags["dry_run"]:
        if flags["undo"]:
            raise output.Usage("--undo and --dry-run exclude each other")
        output.passed_on(
            "".join(f"# IPv{each}\n{redirection.applied(wanted, each, '')}" for each in redirection.Version)
        )
    elif flags["undo"]:
        output.result(_sentence(redirect.undo(), "no longer redirected", "nothing was redirected"))
    else:
        output.result(
            _sentence(
                redirect.apply(wanted),
                f"redirected: inbound to port {wanted.inbound}, outbound to port {wanted.outbound}",
            )
        )


def _sentence(versions: Sequence[int], what: str, otherwise: str = "") -> str:
    names = " and ".join(f"IPv{version}" for version in versions)
    return f"TCP over {names} is {what}" if versions else otherwise
