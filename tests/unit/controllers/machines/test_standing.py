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
    assert [source.resource.plural for source in sources] == ["configmaps", "configmaps", "secrets"]
    name = f"metadata.name={bootstrapper.TOKEN_SECRET}"
    assert sources[-1].scope == api.Scope(namespace=bootstrapper.NAMESPACE, field_selector=name)


async def test_what_is_being_deleted_or_may_not_be_read_is_not_there() -> None:
    world = World()
    assert set(world.credentials.objects().created) == set(standing.PLACES)
    first, second, secret = standing.PLACES
    world.credential(first, after=1, deletionTimestamp="2030-01-01T00:00:00Z")
    world.places[second].refused("configmaps is forbidden")
    known = world.credentials.objects()
    assert (set(known.created), dict(known.refusals)) == ({secret}, {second: "configmaps is forbidden"})
    await world.credentials.wait_answered()


def test_a_view_holds_no_data() -> None:
    assert [each.name for each in msgspec.structs.fields(followed.View)] == ["metadata"]
