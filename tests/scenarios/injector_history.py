# SPDX-License-Identifier: Apache-2.0
"""How the injector's certificate was renewed, from every version of its Secret and of the webhook's CA bundle. It asks for no renewal itself.

Whoever looks now and then sees some of the versions, on a slow machine few. The API server has all of them, in one order for both objects. Each has
to follow from those before it, however many renewals there were:

1. A next pair comes beside the one that is served, then takes its place; never is one of them exchanged for yet another.
2. When it does, the bundle has its root already, and the old one's still.
3. The bundle never loses the root of the pair that is served, and that of the one before only when it is over.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from handfast.pki import certificates, pem
from handfast.rules.mesh import injector_pair, settings, webhook
from handfast.runtime import clock as clocks
from tests.scenarios import injector_world, mesh_world

# Of the pairs that are renewed here: a third of it is left when it is time, more than any machine takes for it.
LIFETIME = datetime.timedelta(minutes=2)


@dataclass
class State:
    """The roots of the pair that is served, of the next one and of the one before, and those in the bundle (DER)."""

    served: bytes | None = None
    following: bytes | None = None
    before: bytes | None = None
    bundle: tuple[bytes, ...] = ()


class History:
    """What became of the Secret and of the bundle since now."""

    def __init__(self, plane: mesh_world.Plane) -> None:
        self._plane = plane
        self._first = {path: plane.call("GET", path)[1] for path in (injector_world.SECRET, injector_world.WEBHOOKS)}

    def has_switched(self, *injectors: injector_world.Injector) -> bool:
        """Whether another pair has taken over, by now; and none of these shows one that is only the next one."""
        for injector in injectors:
            serial = injector.serial()
            # Read after what was shown: what is the next one now was not more than that then.
            following = injector_world.secret(self._plane).get(injector_pair.NEXT_CERTIFICATE_KEY)
            assert following is None or certificates.read(pem.certificates_from_pem(following)[0]).serial != serial
        return "switch" in self.steps()

    def steps(self) -> list[str]:
        """Every step there was, each of which followed from those before it."""
        state = State()
        _read_secret(state, self._first[injector_world.SECRET])
        _read_bundle(state, self._first[injector_world.WEBHOOKS])
        versions = [row for path in self._first for row in self._since(path)]
        steps = [_follow(state, *row) for row in sorted(versions, key=_version)]
        return [step for step in steps if step]

    def _since(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        collection, _, name = path.rpartition("/")
        version = self._first[path]["metadata"]["resourceVersion"]
        query = f"watch=1&fieldSelector=metadata.name%3D{name}&resourceVersion={version}&timeoutSeconds=1"
        with contextlib.closing(self._plane.connection(self._plane.context())) as connection:
            connection.request("GET", f"{collection}?{query}")
            for line in connection.getresponse().read().splitlines():
                event = json.loads(line)
                assert event["type"] == "MODIFIED", event
                yield path, event["object"]


def age(plane: mesh_world.Plane, seconds: float = 25) -> None:
    """Have the Secret hold a pair that is to be renewed in about so many seconds, and ends much later. No injector runs meanwhile."""
    chosen, now = settings.Settings(injector_lifetime=LIFETIME), clocks.SystemClock().now()
    wanted = now + datetime.timedelta(seconds=seconds)
    name = webhook.server_name(injector_world.NAMESPACE)
    whole = injector_pair.make(name, chosen, now).leaf
    # The instant depends on the serial: of a few pairs, one has it near the earliest one there is.
    made_at = wanted - (whole.not_after - whole.not_before) * 0.71 + (now - whole.not_before)
    pairs = (injector_pair.make(name, chosen, made_at) for _ in itertools.count())
    pair = next(pair for pair in pairs if abs((injector_pair.due(pair) - wanted).total_seconds()) < 2)
    stored = injector_pair.after(injector_pair.Stored(), injector_pair.Step.BEGIN, pair)
    injector_world.change(plane, injector_world.SECRET, injector_pair.data(stored))


def _version(row: tuple[str, dict[str, Any]]) -> int:
    return int(row[1]["metadata"]["resourceVersion"])


def _follow(state: State, path: str, document: dict[str, Any]) -> str:
    """One version: what it did, or nothing."""
    if path == injector_world.WEBHOOKS:
        _read_bundle(state, document)
        # 3. who may still be shown is believed
        assert state.served in state.bundle
        assert state.before is None or state.before in state.bundle or _is_over(state.before)
        return ""
    served, following = state.served, state.following
    _read_secret(state, document)
    if (state.served, state.following) == (served, following):
        return ""
    if following is None:
        # 1. beside the one that is served
        assert state.served == served
        return "prepare"
    # 1. in its place
    assert (state.served, state.following) == (following, None)
    state.before = served
    # 2. believed before it is shown, and the old one still
    assert {served, following} <= set(state.bundle)
    return "switch"


def _read_secret(state: State, document: dict[str, Any]) -> None:
    data = document.get("data") or {}
    state.served = _root(data.get(webhook.CERTIFICATE_KEY))
    state.following = _root(data.get(injector_pair.NEXT_CERTIFICATE_KEY))


def _read_bundle(state: State, document: dict[str, Any]) -> None:
    state.bundle = tuple(pem.certificates_from_pem(webhook.bundle(document)))


def _root(value: object) -> bytes | None:
    text = webhook.decoded(value)
    return pem.certificates_from_pem(text)[-1] if text else None


def _is_over(root: bytes) -> bool:
    return certificates.read(root).not_after <= clocks.SystemClock().now()
