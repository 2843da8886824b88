# SPDX-License-Identifier: Apache-2.0
"""What the steps of a rotation do, for each of the two things that can be replaced: the CA, and the key of service account tokens.

First the files of the directory are changed (`change_files`, by `trust_files`), then the objects of the API (`change_objects`, by
`trust_objects`). "Until": the running control plane is asked again and again, until it shows the change.

| step    | CA: files   | CA: objects                                            | token key: files | token key: objects                        |
|---------|-------------|--------------------------------------------------------|------------------|-------------------------------------------|
| add     | `add_ca`    | -                                                      | `add_key`        | -                                         |
| publish | -           | `trust_client_ca`, until nothing is `outdated`         | -                | until `published_keys` have the new one   |
| switch  | `switch_ca` | -                                                      | `switch_key`     | -                                         |
| reissue | `reissue`   | until the `served_certificate` is the new one          | no such step     | no such step                              |
| retire  | `retire_ca` | `distrust_client_ca`, until nothing is `outdated`      | `retire_key`     | until `published_keys` lack the old one   |

`drop`, the way back before the switch, is as `retire`, for the new one. Which step is due, and writing it down, is in `sequence`.
"""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import msgspec

from handfast import errors
from handfast.client import api, issued_certificates
from handfast.client import connection as connections
from handfast.datadir import layout, own_certificates, preparation
from handfast.datadir.rotation import trust_files, trust_objects
from handfast.pki import jwt, profiles
from handfast.rules import trust_rotation
from handfast.rules.tokens import requests
from handfast.runtime import clock as clocks

Step = trust_rotation.Step

# The steps that end a rotation, forward and on the way back.
LAST: Final = frozenset({Step.RETIRE, Step.DROP})
# Seconds that those who notice files are given: several looks, and the writes that follow.
PATIENCE: Final = 30.0
_POLL: Final = 0.5


class ControlPlane(msgspec.Struct, frozen=True, kw_only=True):
    """The control plane of the directory. `reach` opens a client anew, since the credentials change on the way.

    Where it does not run, its API is served to the rotation alone.
    """

    reach: Callable[[], AbstractAsyncContextManager[api.Client]]
    running: bool
    clock: clocks.Clock
    max_token_seconds: int = 0

    async def until(self, unfinished: Callable[[], Awaitable[Sequence[str]]], message: str) -> None:
        """Wait until nothing is unfinished; Unavailable if that takes too long."""
        end = self.clock.monotonic() + PATIENCE
        while True:
            names = await unfinished()
            if not names:
                return
            if self.clock.monotonic() >= end:
                shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
                raise errors.Unavailable(
                    message.format(shown),
                    reason="NotNoticed",
                    hint="see that the API server and the controllers run, copy the files of `pki` to the other servers of this store, "
                    "if there are any, and run the same command again: it goes on here",
                )
            await self.clock.sleep(_POLL)


class Steps(Protocol):
    """The steps of one rotation."""

    @property
    def step_that_takes_effect(self) -> Step:
        """The step that has the control plane use what stays."""
        ...

    def signing(self) -> str:
        """Who signs now: what the rotation begins with."""
        ...

    async def observe(self) -> trust_rotation.Observed:
        """Look who still depends on what is to be retired: holders of its certificates or tokens, and for how long."""
        ...

    def change_files(
        self, work: own_certificates.Work, step: Step, state: trust_rotation.State
    ) -> trust_rotation.State: ...

    async def change_objects(self, step: Step, state: trust_rotation.State) -> list[str]:
        """Change the objects of this step, wait until the control plane shows the change, and return what was done, a line each."""
        ...


class AuthoritySteps(msgspec.Struct, frozen=True):
    """Replacing the CA."""

    place: layout.Layout
    directory: trust_files.RotationDirectory
    control_plane: ControlPlane
    step_that_takes_effect: Step = Step.REISSUE

    def signing(self) -> str:
        return trust_files.signing_ca(self.place)

    async def observe(self) -> trust_rotation.Observed:
        async with self.control_plane.reach() as client:
            return trust_rotation.Observed(
                entries=await issued_certificates.entries(client),
                running_nodes=await trust_objects.running_nodes(client, self.control_plane.clock.now()),
                longest_lifetime=profiles.YEAR,
            )

    def change_files(
        self, work: own_certificates.Work, step: Step, state: trust_rotation.State
    ) -> trust_rotation.State:
        if step is Step.ADD:
            return dataclasses.replace(state, new=trust_files.add_ca(work, self.directory))
        if step is Step.SWITCH:
            trust_files.switch_ca(work, self.directory, state)
        elif step is Step.REISSUE:
            trust_files.reissue(work)
        elif step in LAST:
            trust_files.retire_ca(work, self.directory, state)
        return state

    async def change_objects(self, step: Step, state: trust_rotation.State) -> list[str]:
        if step is Step.PUBLISH:
            return await self._publish(state)
        if step is Step.REISSUE:
            return await self._until_served()
        if step in LAST:
            return await self._withdraw(trust_files.leaving_ca(self.directory, state))
        return []

    async def _publish(self, state: trust_rotation.State) -> list[str]:
        """Have the API server trust clients of the new CA, and have everyone told of both."""
        der = trust_files.der_of(self.place, state.staying)
        async with self.control_plane.reach() as client:
            added = await trust_objects.trust_client_ca(client, der)
            await self._publish_or_wait(client, wanted=state.staying)
        # Whoever looks at the ConfigMap sees both from here on, and so does the API server.
        return [
            f"client CAs of the API server {'extended' if added else 'complete'}",
            "kube-root-ca.crt and cluster-info tell of both",
        ]

    async def _until_served(self) -> list[str]:
        """Wait until the API server serves with its new certificate."""
        if not self.control_plane.running:
            return []
        wanted = own_certificates.certificate(self.place.apiserver_certificate).der

        async def unfinished() -> Sequence[str]:
            connection = connections.load(str(self.place.admin_kubeconfig))
            served = await trust_objects.served_certificate(connection)
            return [] if served == wanted else [connection.server]

        await self.control_plane.until(unfinished, "the API server does not serve the new certificate yet: {}")
        return ["the API server serves the new certificate"]

    async def _withdraw(self, leaving: Sequence[str]) -> list[str]:
        """Stop the API server from trusting clients of the leaving CA, and wait until nothing publishes it."""
        if not leaving:
            return []
        async with self.control_plane.reach() as client:
            removed = await trust_objects.distrust_client_ca(client, leaving)
            await self._publish_or_wait(client, unwanted=leaving)
        return [
            f"client CAs of the API server {'reduced' if removed else 'complete'}",
            "kube-root-ca.crt and cluster-info tell of one only",
        ]

    async def _publish_or_wait(self, client: api.Client, *, wanted: str = "", unwanted: Sequence[str] = ()) -> None:
        if not self.control_plane.running:
            # Nobody else is there to publish it.
            await trust_objects.publish(client, preparation.read_trust(self.place).text)

        async def unfinished() -> Sequence[str]:
            # A CA is gone only when no certificate of its key is trusted.
            left = trust_files.retained(self.place, unwanted)
            return left + await trust_objects.outdated(client, wanted=wanted, unwanted=unwanted)

        await self.control_plane.until(unfinished, "these do not tell of the right CAs yet: {}")


class TokenKeySteps(msgspec.Struct, frozen=True):
    """Replacing the key of service account tokens."""

    place: layout.Layout
    directory: trust_files.RotationDirectory
    control_plane: ControlPlane
    step_that_takes_effect: Step = Step.SWITCH

    def signing(self) -> str:
        return trust_files.signing_key_id(self.place)

    async def observe(self) -> trust_rotation.Observed:
        async with self.control_plane.reach() as client:
            key = own_certificates.private_key(self.place.service_account_key).public
            # What a Pod gets lives a year, however short the tokens are that others may ask for.
            seconds = max(requests.EXTENDED_SECONDS, self.control_plane.max_token_seconds)
            return trust_rotation.Observed(
                longest_lifetime=datetime.timedelta(seconds=seconds),
                old_tokens=await trust_objects.old_tokens(client, key),
            )

    def change_files(
        self, work: own_certificates.Work, step: Step, state: trust_rotation.State
    ) -> trust_rotation.State:
        if step is Step.ADD:
            return dataclasses.replace(state, new=trust_files.add_key(work, self.directory))
        if step is Step.SWITCH:
            trust_files.switch_key(work, self.directory, state)
        elif step in LAST:
            trust_files.retire_key(work, state, self._leaving(state))
        return state

    async def change_objects(self, step: Step, state: trust_rotation.State) -> list[str]:
        if step is Step.PUBLISH:
            await self._until_key_set(wanted=state.staying)
        elif step in LAST:
            await self._until_key_set(unwanted=self._leaving(state))
        else:
            return []
        return ["the key set of the API server is the changed one"]

    def _leaving(self, state: trust_rotation.State) -> str:
        """The key id that leaves.

        If `add` was cut short, the state lacks it: then it is that of the new key on disk.
        """
        return state.leaving or trust_files.new_key_id(self.directory)

    async def _until_key_set(self, *, wanted: str = "", unwanted: str = "") -> None:
        async with self.control_plane.reach() as client:

            async def unfinished() -> Sequence[str]:
                published = await trust_objects.published_keys(client)
                return [jwt.JWKS_PATH] if (wanted and wanted not in published) or unwanted in published else []

            await self.control_plane.until(unfinished, "the API server does not tell the changed keys yet: {}")


STEPS_OF_TARGET: Final[
    dict[trust_rotation.Target, Callable[[layout.Layout, trust_files.RotationDirectory, ControlPlane], Steps]]
] = {
    trust_rotation.Target.CA: AuthoritySteps,
    trust_rotation.Target.TOKEN_KEY: TokenKeySteps,
}
