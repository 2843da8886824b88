# SPDX-License-Identifier: Apache-2.0
"""What a shell offers for an argument: the tokens, certificate requests and nodes that the API server knows.

1. Of a token only the id is offered. Only metadata is asked for, so the secret is never sent.
2. The server is the one that the command would ask, by the flags that are typed already, and only where somebody named it: a flag
   or a variable. What lies in the current directory is not read, since pressing a key is no decision to trust it.
3. Nothing is offered where the server does not answer within `SECONDS`, or refuses. Nothing is printed.
4. Only names of plain characters are offered: a shell may obey others.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from handfast import errors
from handfast.cli import connecting, directories

if TYPE_CHECKING:
    from handfast.client import api

SECONDS: Final = 2.0
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*", re.ASCII)
_Ask = Callable[["api.Client"], Awaitable[Iterable[str]]]


def tokens(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Ids of bootstrap tokens."""
    return _offered(ctx, parameter, incomplete, _token_ids)


def requests(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of certificate requests."""
    return _offered(ctx, parameter, incomplete, _request_names)


def nodes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of nodes."""
    return _offered(ctx, parameter, incomplete, _node_names)


def machines(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names of Machines."""
    return _offered(ctx, parameter, incomplete, _machine_names)


def _offered(ctx: click.Context, parameter: click.Parameter, incomplete: str, ask: _Ask) -> list[str]:
    import asyncio

    try:
        # 2. the server of the command, if somebody named it
        directory = ctx.params.get("directory") or directories.DEFAULT
        path = connecting.named(ctx, ctx.params.get("kubeconfig"), directory)
        if path is None:
            return []
        names = asyncio.run(asyncio.wait_for(_asked(path, ask), SECONDS))
    except (errors.HandfastError, OSError, ValueError):
        # 3. nothing is offered; a timeout is an OSError
        return []
    typed = ctx.params.get(parameter.name or "") or ()
    # 4. plain names
    return sorted(
        name for name in names if name.startswith(incomplete) and name not in typed and _PLAIN.fullmatch(name)
    )


async def _asked(kubeconfig: str, ask: _Ask) -> list[str]:
    async with connecting.connected(kubeconfig) as reached:
        return list(await ask(reached.client))


async def _token_ids(client: api.Client) -> Iterable[str]:
    from handfast.client import tokens as over_api

    # 1. ids alone
    return await over_api.ids(client)


async def _request_names(client: api.Client) -> Iterable[str]:
    from handfast.api import resources

    return [each["metadata"]["name"] for each in await client.list(resources.SIGNING_REQUESTS, metadata=True)]


async def _machine_names(client: api.Client) -> Iterable[str]:
    from handfast.client import machines as client_machines

    return [machine.name for machine in (await client_machines.read(client)).index]


async def _node_names(client: api.Client) -> Iterable[str]:
    from handfast.api import resources

    return [each["metadata"]["name"] for each in await client.list(resources.NODES, metadata=True)]
