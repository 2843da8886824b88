# SPDX-License-Identifier: Apache-2.0
"""Anchors that a proxy learns, keeps and believes; with the identity service on real sockets where it has to prove its name."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from handfast import errors
from handfast.pki import bundles, keys
from handfast.pki import names as pki_names
from handfast.proxy import trust as trust_module
from handfast.rules.mesh import issuer
from handfast.rules.mesh import names as mesh_names
from tests.unit.proxy import test_credentials
from tests.unit.wire import greeting, identity_service
from tests.world.clock import START, settle

HOUR = test_credentials.HOUR


def root() -> bytes:
    return issuer.generate(START).anchors


def bundle(*roots: bytes) -> bundles.TrustBundle:
    return issuer.read_anchors(b"".join(roots))


@pytest.fixture
def kept(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / trust_module.NAME


def test_the_first_anchors_count_until_others_are_learned(kept):
    old, new = root(), root()
    trust = trust_module.Trust(bundle(old), kept)
    assert trust.current == bundle(old)
    assert not kept.exists()
    assert trust.learn(old + new)
    assert trust.current == bundle(old, new)
    # The same set in another order is no change.
    assert not trust.learn(new + old)
    assert trust.learn(new)
    assert trust.current == bundle(new)


def test_learned_anchors_are_kept_for_the_owner_and_used_after_a_restart(kept):
    old, new = root(), root()
    trust_module.Trust(bundle(old), kept).learn(old + new)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o400
    assert sorted(path.name for path in kept.parent.iterdir()) == [trust_module.NAME]
    again = trust_module.Trust(bundle(old), kept)
    assert again.current == bundle(old, new)
    # Others have no trouble with the line before the certificates.
    assert bundles.TrustBundle.from_pem(kept.read_bytes()) == bundle(old, new)
    again.learn(old)
    assert trust_module.Trust(bundle(old), kept).current == bundle(old)


def test_without_a_place_nothing_is_kept():
    old, new = root(), root()
    trust = trust_module.Trust(bundle(old), None)
    assert trust.learn(new)
    assert trust.current == bundle(new)


async def test_who_follows_is_given_each_change_and_the_last_of_several(kept):
    one, two, three = root(), root(), root()
    trust = trust_module.Trust(bundle(one), kept)
    followed = trust.follow()
    assert await anext(followed) == bundle(one)
    trust.learn(two)
    trust.learn(three)
    assert await anext(followed) == bundle(three)


def many() -> bytes:
    """Two thousand certificates: the form is right, and so is each."""
    return root() * 2000


def leaf() -> bytes:
    material = issuer.generate(START)
    signer = issuer.load(material, mesh_names.Mesh("cluster.local"), START)
    sans = pki_names.make_sans(dns=["a.b"])
    profile = greeting.BOTH
    return signer.authority.issue(keys.generate().public, pki_names.Subject(), sans, profile, START).pem


@pytest.mark.parametrize("data", [b"", b"nonsense", many(), leaf(), root()[:-40]])
def test_anchors_that_cannot_be_used_change_nothing(kept, data):
    old = root()
    trust = trust_module.Trust(bundle(old), kept)
    with pytest.raises(issuer.Unfit):
        trust.learn(data)
    assert trust.current == bundle(old)
    assert not kept.exists()


def test_anchors_that_cannot_be_kept_are_not_believed(tmp_path):
    old = root()
    trust = trust_module.Trust(bundle(old), tmp_path / "nowhere" / trust_module.NAME)
    with pytest.raises(errors.HandfastError) as caught:
        trust.learn(root())
    assert caught.value.reason == "FileNotFound"
    assert trust.current == bundle(old)


def _by_link(kept: pathlib.Path) -> None:
    kept.rename(kept.with_name("elsewhere.pem"))
    kept.symlink_to("elsewhere.pem")


def _by_pipe(kept: pathlib.Path) -> None:
    kept.unlink()
    os.mkfifo(kept)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda kept: kept.chmod(0o444),
        _by_link,
        lambda kept: (kept.chmod(0o600), kept.write_bytes(kept.read_bytes()[:-40])),
        lambda kept: (kept.chmod(0o600), kept.write_bytes(b"")),
        _by_pipe,
        lambda kept: (kept.unlink(), kept.mkdir()),
    ],
)
def test_kept_anchors_of_another_or_for_others_are_not_used(kept, spoil):
    old = root()
    trust_module.Trust(bundle(old), kept).learn(root())
    spoil(kept)
    assert trust_module.Trust(bundle(old), kept).current == bundle(old)


def test_anchors_learned_from_other_first_ones_are_not_used(kept):
    trust_module.Trust(bundle(root()), kept).learn(root())
    other = root()
    assert trust_module.Trust(bundle(other), kept).current == bundle(other)


def test_the_file_of_the_start_up_stays_as_it_was_made(tmp_path):
    world = test_credentials.World(tmp_path)
    before = pathlib.Path(world.files.anchors_file).read_bytes()
    trust = trust_module.of_start(world.anchors, world.files.anchors_file)
    trust.learn(root())
    assert pathlib.Path(world.files.anchors_file).read_bytes() == before
    assert trust_module.of_start(world.anchors, world.files.anchors_file).current == trust.current


async def test_a_false_identity_service_is_not_believed_by_its_own_root(tmp_path):
    world = test_credentials.World(tmp_path)
    world.signing = issuer.generate(START)
    async with (
        world.serving(identity_service.NAME) as address,
        world.running(address, identity_service.NAME) as own,
    ):
        await world.until(lambda: own.failures > 0)
    assert world.tokens == []
    assert world.trust.current == world.anchors


async def test_after_the_old_root_is_gone_its_service_is_not_believed(tmp_path):
    world = test_credentials.World(tmp_path)
    async with (
        world.serving(identity_service.NAME) as address,
        world.running(address, identity_service.NAME) as own,
    ):
        await world.certified(own)
        world.trust.learn(root())
        await world.until(lambda: own.failures > 0, each=HOUR)
        assert own.renewals == 1
    assert len(world.tokens) == 1


async def test_an_issuer_of_a_learned_root_is_believed_while_the_one_before_is(tmp_path):
    world = test_credentials.World(tmp_path)
    async with (
        world.serving(identity_service.NAME) as address,
        world.running(address, identity_service.NAME) as own,
    ):
        first = await world.certified(own)
        world.signing = issuer.generate(START)
        world.trust.learn(world.anchors.to_pem() + world.signing.anchors)
        second = await world.certified(own, 2, each=HOUR)
        await settle()
    assert first.chain[-1] != second.chain[-1]
