# SPDX-License-Identifier: Apache-2.0
"""Which objects are followed, and what is known of them."""

from __future__ import annotations

import msgspec

from handfast.client import api
from handfast.controllers.machines import standing as followed
from handfast.rules.machines import bootstrapper, standing
from tests.unit.controllers.machines.machine_world import World


def test_each_is_followed_by_its_name_and_by_metadata_alone() -> None:
    sources = [followed.source(place) for place in standing.PLACES]
    assert all(source.metadata for source in sources)
    assert [source.resource.plural for source in sources] == ["configmaps", "configmaps", "secrets", "secrets"]
    for source, name in zip(sources[2:], bootstrapper.TOKEN_SECRETS, strict=True):
        assert source.scope == api.Scope(namespace=bootstrapper.NAMESPACE, field_selector=f"metadata.name={name}")


async def test_what_is_being_deleted_or_may_not_be_read_is_not_there() -> None:
    world = World()
    assert set(world.credentials.objects().created) == set(standing.PLACES)
    first, second, *secrets = standing.PLACES
    world.credential(first, after=1, deletionTimestamp="2030-01-01T00:00:00Z")
    world.places[second].refused("configmaps is forbidden")
    known = world.credentials.objects()
    assert (set(known.created), dict(known.refusals)) == ({*secrets}, {second: "configmaps is forbidden"})
    await world.credentials.wait_answered()


def test_a_secret_that_is_only_called_so_is_not_there() -> None:
    world = World()
    *others, following = standing.PLACES
    world.credential(following, after=-1, annotations={})
    assert set(world.credentials.objects().created) == {*others}


def test_a_view_holds_no_data() -> None:
    assert [each.name for each in msgspec.structs.fields(followed.View)] == ["metadata"]
