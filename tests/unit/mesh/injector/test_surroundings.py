# SPDX-License-Identifier: Apache-2.0
"""What is known beside a review: the plan stays when what is stored is no good, and namespaces and accounts are asked for."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import admission, admission_reviews, control_plane, names
from tests.unit.mesh.injector import injecting
from tests.unit.rules.mesh import pods


@pytest.fixture
def world() -> injecting.World:
    world = injecting.World()
    world.install()
    return world


async def around(world: injecting.World, namespace: str = "shop") -> admission.Around:
    assert world.around.plan is not None
    review = admission_reviews.read(injecting.review(pods.pod(), namespace=namespace))
    return await world.around.around(review, world.around.plan)


def test_before_anything_is_there_nothing_is_ready():
    world = injecting.World()
    assert world.around.not_ready() == "nothing was read yet"
    world.client.put("serviceaccounts", "linkerd-identity", injecting.NAMESPACE)
    world.deliver()
    assert world.around.not_ready() == "there is no linkerd-config in namespace linkerd"
    assert world.around.settings() is None


def test_the_plan_is_that_of_the_installation(world):
    assert world.around.not_ready() is None
    plan = world.around.plan
    assert plan is not None
    assert plan.anchors == injecting.MATERIAL.anchors.decode()
    assert plan.uids["linkerd-controller"] == "uid-linkerd-controller"
    assert world.around.settings() == plan.settings


def test_what_is_no_good_changes_nothing(world):
    before = world.around.plan
    world.client.put("configmaps", control_plane.CONFIG, injecting.NAMESPACE, data={"trustDomain": "NO"})
    world.deliver()
    assert world.around.plan is before
    assert world.around.not_ready() is None
    world.client.put("configmaps", control_plane.CONFIG, injecting.NAMESPACE, data={"trustDomain": "mesh.example"})
    world.deliver()
    assert world.around.plan is not None
    assert world.around.plan.settings.trust_domain == "mesh.example"


async def test_a_namespace_that_is_not_known_is_asked_for(world):
    assert (await around(world)).annotations == injecting.ENABLED
    world.client.put("namespaces", "new", metadata={"annotations": injecting.ENABLED})
    assert not world.around.knows("new")
    assert (await around(world, "new")).annotations == injecting.ENABLED
    assert (await around(world, "nowhere")).annotations == {}


async def test_the_uid_of_an_account_is_asked_for_each_time_where_names_have_it(world):
    world.client.put("serviceaccounts", "default", "shop")
    assert (await around(world)).uid == ""
    world.install(scheme=names.Scheme.UID)
    assert (await around(world)).uid == "uid-default"
    world.client.put("serviceaccounts", "default", "shop", metadata={"uid": "another"})
    assert (await around(world)).uid == "another"
    del world.client.objects["serviceaccounts", "shop", "default"]
    assert (await around(world)).uid == ""
