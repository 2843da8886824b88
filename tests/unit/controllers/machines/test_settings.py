# SPDX-License-Identifier: Apache-2.0
"""The settings, followed: the last good ones stay, and what is wrong is told."""

from __future__ import annotations

import datetime

import pytest

from handfast.api import status
from handfast.client import cache
from handfast.controllers import loop
from handfast.controllers.machines import settings as machine_settings
from handfast.rules.machines import settings
from tests.unit.controllers.machines.machine_world import CONFIG, World


async def test_the_last_good_settings_stay() -> None:
    world = World()
    changes: list[str] = []
    world.settings.subscribe(lambda: changes.append("changed"))
    assert world.settings.current == settings.DEFAULT
    world.configure("joinWithin: 3h")
    world.configure("joinWithin: soon")
    assert world.settings.current == settings.Settings(join_within=datetime.timedelta(hours=3))
    assert world.settings.trouble is not None
    assert world.settings.trouble.reason == "SettingsUnreadable"
    world.configure("")
    await world.keeper.reconcile()
    assert world.settings.current == settings.DEFAULT
    # The window was longer for a while. The text that could not be read was gone before the keeper looked.
    assert [reason for reason, _ in world.said_of("ConfigMap")] == ["SettingsWeakened"]
    assert changes == ["changed"] * 3


async def test_a_deleted_one_means_the_defaults() -> None:
    world = World()
    world.configure("nodeClientCert: {disabled: true}")
    there = world.settings.config_map
    assert there is not None
    world.config.remove(there)
    assert world.settings.current == settings.DEFAULT


@pytest.mark.parametrize("by_deletion", [True, False])
async def test_settings_that_ask_for_less_are_told_of(by_deletion: bool) -> None:
    world = World()
    world.configure("credential: per-machine\nnodeClientCert: {disabled: true}")
    await world.keeper.reconcile()
    assert world.said_of("ConfigMap") == []
    there = world.settings.config_map
    assert there is not None
    if by_deletion:
        world.config.remove(there)
    else:
        world.configure("joinWithin: 1h")
    for _ in range(2):
        await world.keeper.reconcile()
    ((reason, message),) = world.said_of("ConfigMap")
    assert reason == "SettingsWeakened"
    assert message == (
        "the machine-approver's settings ask for less than before: client requests are approved again; credential is shared; "
        "the audit log has who changed them"
    )


async def test_what_comes_at_a_start_is_no_change() -> None:
    world = World(answered=False)
    world.configure("joinWithin: 9h")
    world.config.end()
    await world.keeper.reconcile()
    assert world.said_of("ConfigMap") == []


async def test_it_is_told_of_the_namespace_where_that_takes_no_event() -> None:
    world = World()
    world.configure("joinWithin: 9h")

    def refuse(verb: str, plural: str, _: str) -> None:
        if (verb, plural, world.said_of("ConfigMap")) == ("create", "events", []) and not refused:
            refused.append(plural)
            raise status.StatusError("Forbidden", "it is being terminated")

    refused: list[str] = []
    world.client.before = refuse
    await world.keeper.reconcile()
    ((reason, message),) = world.said_of("Namespace")
    assert (reason, "joinWithin is longer, 9h" in message) == ("SettingsWeakened", True)
    # Where neither takes one, it is let go: the log has it.
    world.configure("joinWithin: 10h")
    world.client.before = lambda *_: (_ for _ in ()).throw(status.StatusError("Forbidden", "no"))
    await world.keeper.reconcile()
    assert len(world.said_of("Namespace")) == 1


async def test_nothing_is_judged_again_for_other_words_of_the_same_settings() -> None:
    world = World()
    world.configure("joinWithin: 3h")
    changes: list[str] = []
    world.settings.subscribe(lambda: changes.append("changed"))
    for text in ("joinWithin: 3h", "joinWithin: 180m", "joinWithin: 3h\nreadmission: false"):
        world.configure(text)
    assert changes == []
    for text in ("joinWithin: soon", "joinWithin: soon", "joinWithin: sooner", "joinWithin: 3h"):
        world.configure(text)
    assert changes == ["changed"] * 3


async def test_the_flag_is_the_default() -> None:
    day = datetime.timedelta(days=1)
    informer = cache.Informer(machine_settings.SOURCE)
    followed = machine_settings.Followed(informer, day)
    assert followed.current is None
    assert followed.identities == settings.DEFAULT.identities
    informer.end()
    await followed.wait_answered()
    assert followed.current == settings.Settings(join_within=day)


async def test_what_is_wrong_is_told_once() -> None:
    world = World()
    world.configure("joinWithin: soon")
    for _ in range(2):
        await world.keeper.reconcile()
    ((reason, message),) = world.said_of("ConfigMap")
    assert (reason, message.endswith("the last good settings stay")) == ("SettingsUnreadable", True)
    assert world.client.calls == [("create", "events", world.client.calls[0][2])]
    (family,) = machine_settings.UNREADABLE.collect()
    assert family.samples[0].value == 1
    world.configure("")
    await world.keeper.reconcile()
    (family,) = machine_settings.UNREADABLE.collect()
    assert family.samples[0].value == 0


async def test_a_missing_one_is_made_empty() -> None:
    world = World()
    await world.keeper.reconcile()
    assert world.client.objects[CONFIG]["data"] == {}


@pytest.mark.parametrize("reason", ["Forbidden", "AlreadyExists"])
async def test_one_that_may_not_be_made_is_done_without(reason: str) -> None:
    world = World()

    def refuse(verb: str, *_: str) -> None:
        if verb == "create":
            raise status.StatusError(reason, "no")

    world.client.before = refuse
    await world.keeper.reconcile()
    assert world.client.calls == []


async def test_its_namespace_is_waited_for() -> None:
    world = World()

    def missing(verb: str, plural: str, name: str) -> None:
        if verb == "create":
            raise status.not_found(plural, "", name)

    world.client.before = missing
    with pytest.raises(loop.NotYet, match="there is no namespace openshift-cluster-machine-approver"):
        await world.keeper.reconcile()
