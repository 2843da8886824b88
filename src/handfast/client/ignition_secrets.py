# SPDX-License-Identifier: Apache-2.0
"""Keeps the digests of the secrets by which machines ask for their configuration, over the API of whichever cluster.

The text is the caller's: it is shown once, and is nowhere in the cluster (`rules.machine_config.ignition_secrets`).

1. A machine that has a certificate gets no secret: it would not count.
2. A secret that is there is replaced only if somebody says so, since a machine may be using it. The old secret of a machine ends at once;
   that of a pool stays good for the overlap, for machines in flight.
3. A secret of an earlier Machine of the same name is good for nobody, and is replaced.
4. A Secret of that name that is none of ours is left alone.
5. A write carries the version that was read: of two who rotate at the same time one is refused, and nobody's secret is lost unseen.
"""

from __future__ import annotations

import datetime
import shlex
from typing import Final

from handfast import errors
from handfast.api import machine_config_kinds, objects, resources, status
from handfast.client import api
from handfast.rules.machine_config import ignition_secrets
from handfast.rules.machines import bootstrapper, inventory

_SPACE: Final = bootstrapper.NAMESPACE
_LABELLED: Final = api.Scope(namespace=_SPACE, label_selector=ignition_secrets.LABEL)
EXISTS: Final = "IgnitionSecretExists"


async def keep_for_machine(
    client: api.Client, machine: inventory.Machine, pool: str, text: str, *, rotate: bool
) -> None:
    """Have this text be the secret of a Machine, for a pool."""
    # 1. not for a machine that has a certificate
    if machine.approved_key or machine.node:
        raise errors.Refused(
            f"{machine.title} has a certificate of its own, or had one approved: a secret would not count",
            reason="MachineHasJoined",
            hint=f"if the machine is set up anew: `handfast machine readmit {shlex.quote(machine.name)}`, then this again",
        )
    document = ignition_secrets.for_machine(machine, pool, text)
    there = await client.find(resources.SECRETS, objects.metadata(document)["name"], namespace=_SPACE)
    if there is not None:
        entry = _ours(there)
        # 3. of an earlier Machine, or 2. on demand
        if entry.machine_uid == machine.uid and not rotate:
            raise _exists(f"{machine.title} has a secret", "the machine's own ends at once")
        await _delete(client, there)
    await _create(client, document)


async def keep_for_pool(client: api.Client, pool: str, text: str, until: datetime.datetime | None) -> None:
    """Have this text be the secret of a pool; one that is there counts until this instant, and None replaces none."""
    await _require_pool(client, pool)
    document = ignition_secrets.for_pool(pool, text)
    name = objects.metadata(document)["name"]
    there = await client.find(resources.SECRETS, name, namespace=_SPACE)
    if there is None:
        await _create(client, document)
        return
    _ours(there)
    if until is None:
        raise _exists(f"the pool {pool} has a secret", "the one before goes on for the --overlap")
    # 5. as it was read
    version = {"metadata": {"resourceVersion": objects.metadata(there)["resourceVersion"]}}
    await client.patch(
        resources.SECRETS, name, version | ignition_secrets.rotated(there, text, until), namespace=_SPACE
    )


async def entries(client: api.Client) -> list[ignition_secrets.Entry]:
    """Every secret that is kept, by its digest."""
    secrets = await client.list(resources.SECRETS, _LABELLED)
    return [entry for each in secrets for entry in ignition_secrets.read(each)]


async def forget(client: api.Client, machine: inventory.Machine) -> None:
    """End the secret of a Machine, where it has one."""
    name = ignition_secrets.machine_secret_name(machine.name)
    there = await client.find(resources.SECRETS, name, namespace=_SPACE)
    if there is not None and any(entry.machine_uid == machine.uid for entry in ignition_secrets.read(there)):
        await _delete(client, there)


async def _require_pool(client: api.Client, pool: str) -> None:
    row = machine_config_kinds.MACHINE_CONFIG_POOL
    if await client.find(row, pool, metadata=True) is None:
        named = [objects.metadata(each)["name"] for each in await client.list(row, metadata=True)]
        raise errors.Refused(f'there is no pool "{pool}"', reason="NoPool", hint=f"there are: {', '.join(named)}")


def _ours(there: objects.Document) -> ignition_secrets.Entry:
    entries = ignition_secrets.read(there)
    # 4. never a Secret that is none of ours
    if not entries:
        raise errors.Refused(
            f"the Secret {_SPACE}/{objects.metadata(there)['name']} is there, and is no secret of a machine or a pool",
            reason="SecretTaken",
            hint="look at it, and delete it if nobody needs it",
        )
    return entries[0]


def _exists(what: str, then: str) -> errors.Refused:
    return errors.Refused(
        f"{what} already, whose text is nowhere kept", reason=EXISTS, hint=f"--rotate makes another: {then}"
    )


async def _create(client: api.Client, document: objects.Document) -> None:
    try:
        await client.create(resources.SECRETS, document, namespace=_SPACE)
    except status.StatusError as error:
        if error.reason == "NotFound":
            error.hint = f"there is no namespace {_SPACE}: `handfast init --machines` makes it"
        raise


async def _delete(client: api.Client, secret: objects.Document) -> None:
    meta = objects.metadata(secret)
    with api.MISSING_OK:
        await client.delete(resources.SECRETS, meta["name"], namespace=_SPACE, uid=meta["uid"])
