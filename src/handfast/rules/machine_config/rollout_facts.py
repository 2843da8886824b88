# SPDX-License-Identifier: Apache-2.0
"""Everything by which a roll-out of credentials is decided, as documents and facts that somebody has read.

It reads nothing itself and decides nothing: `rollout_progress` says how far everybody is, `credential_rollout` what is next.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handfast.api import jsonpath, objects
from handfast.rules.machine_config import credential, credential_rollout, members, pools, rollout_progress
from handfast.rules.machines import bootstrap_token, bootstrapper, revocation

Document = Mapping[str, Any]


# Without slots, which a cached property cannot have: what follows from a thousand nodes is computed once.
@dataclass(frozen=True, kw_only=True)
class Facts:
    """Secrets and ConfigMaps of `credential`, the bootstrap account, every Secret with a token of it, and the fleet. Nothing of it prints."""

    secrets: Sequence[Document] = field(default=(), repr=False)
    config_maps: Sequence[Document] = field(default=(), repr=False)
    account: Document | None = field(default=None, repr=False)
    tokens: Sequence[Document] = field(default=(), repr=False)
    pools: Sequence[pools.Pool] = ()
    nodes: Sequence[members.Node] = ()
    renderings: members.Renderings = field(default_factory=dict)

    @functools.cached_property
    def seen(self) -> credential.Seen:
        return credential.read(self.secrets, self.config_maps)

    @functools.cached_property
    def fleet(self) -> rollout_progress.Fleet:
        """How far everybody is."""
        return rollout_progress.of(self.pools, self.nodes, self.renderings, self.seen)

    @property
    def foreseen(self) -> rollout_progress.Fleet:
        """Who would follow, and who could not."""
        return rollout_progress.foreseen(self.pools, self.nodes, self.seen)

    @property
    def under_way(self) -> bool:
        """Whether something is to be revoked after a roll-out, or was and is not over."""
        marked = any(map(credential.is_marked, (*self.config_maps, *self.secrets)))
        return marked or self._secret(bootstrapper.NEXT_TOKEN_SECRET) is not None

    def step(self, kind: str, now: datetime.datetime) -> credential_rollout.Step:
        """What is next for the credential of this kind."""
        concerned = self.fleet.concerned(kind)
        if kind == revocation.MASTER:
            return credential_rollout.step(credential_rollout.Masters(objects=self._masters(), pools=concerned))
        shared, following = map(self._secret, bootstrapper.TOKEN_SECRETS)
        return credential_rollout.step(
            credential_rollout.Workers(
                account=None if self.account is None else bootstrap_token.read_account(self.account),
                shared=None if shared is None else bootstrap_token.read_secret(shared, now),
                marked=shared is not None and credential.is_marked(shared),
                next=None if following is None else bootstrap_token.read_secret(following, now),
                next_created=None if following is None else _created(following),
                tokens=tuple(_object("Secret", each) for each in self.tokens),
                pools=concerned,
            )
        )

    def to_mark(self, kind: str) -> tuple[credential_rollout.Object, ...]:
        """Where the mark goes to have the credential of this kind replaced; nothing where there is none to replace."""
        if kind == revocation.MASTER:
            there = self._masters()
            return there if any(each.target[0] == "ConfigMap" for each in there) else ()
        shared = self._secret(bootstrapper.TOKEN_SECRET)
        return () if shared is None or self.seen.shared is None else (_object("Secret", shared),)

    def _secret(self, name: str) -> Document | None:
        return next((each for each in self.secrets if objects.metadata(each).get("name") == name), None)

    def _masters(self) -> tuple[credential_rollout.Object, ...]:
        there = [_object("ConfigMap", each) for each in self.config_maps]
        there += [_object("Secret", each) for each in self.secrets]
        return tuple(
            sorted(
                (each for each in there if each.target in revocation.MASTERS),
                key=lambda each: revocation.MASTERS.index(each.target),
            )
        )


def _object(kind: str, document: Document) -> credential_rollout.Object:
    meta = objects.metadata(document)
    return credential_rollout.Object(
        target=(kind, jsonpath.text(meta, "namespace"), jsonpath.text(meta, "name")),
        uid=jsonpath.text(meta, "uid"),
        marked=credential.is_marked(document),
        deleting=bool(meta.get("deletionTimestamp")),
    )


def _created(document: Document) -> datetime.datetime:
    return objects.parse_timestamp(objects.metadata(document)["creationTimestamp"])
