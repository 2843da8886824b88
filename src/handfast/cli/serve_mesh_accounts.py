# SPDX-License-Identifier: Apache-2.0
"""`handfast serve mesh-accounts`, a child of `up`: fresh tokens for the services of the mesh, once. It runs nothing.

It prints how long they live. What is written where is in `client.account_tokens`.
"""

from __future__ import annotations

import json
from typing import Final

import click

from handfast.cli import connecting, output, roles, settings, supervised
from handfast.datadir import layout

# The shortest life that an API server grants.
_SECONDS: Final = 3600


@click.command(name="mesh-accounts", hidden=True)
@settings.directory_option(roles.DIRECTORY)
@supervised.option
def command(directory: str, tie: int | None) -> None:
    """Write fresh tokens for the services of the mesh, and print for how many seconds they are good."""
    import asyncio

    with supervised.tied(tie):
        seconds = asyncio.run(_work(layout.Layout.at(directory)))
        output.result(json.dumps({"seconds": seconds}))


async def _work(place: layout.Layout) -> float:
    from handfast.client import account_tokens
    from handfast.rules.mesh import control_plane
    from handfast.runtime import clock as clocks

    places = {account: place.mesh_token(account) for account in control_plane.ACCOUNTS}
    async with connecting.connected(str(place.admin_kubeconfig)) as reached:
        ends = await account_tokens.keep(reached.client, control_plane.NAMESPACE, places, seconds=_SECONDS)
    return (ends - clocks.SystemClock().now()).total_seconds()
