# SPDX-License-Identifier: Apache-2.0
"""Issuer and anchors from files: followed for writes in place and for directories that are swapped, and used only when they are good."""

from __future__ import annotations

import pathlib

import pytest
from structlog.testing import capture_logs

from handfast.mesh.identity import sources
from handfast.pki import keys
from handfast.rules.mesh import issuer
from tests.unit.mesh.identity import identity_world
from tests.unit.mesh.identity.identity_world import NOW
from tests.world.clock import settle


def write(directory: pathlib.Path, material: issuer.Material) -> None:
    directory.mkdir(exist_ok=True)
    (directory / "tls.crt").write_bytes(material.certificate)
    (directory / "tls.key").write_bytes(material.key)
    (directory / "tls.key").chmod(0o600)
    (directory / "ca.crt").write_bytes(material.anchors)


class World(identity_world.World):
    """A service whose issuer is in files."""

    def __init__(self, directory: pathlib.Path) -> None:
        super().__init__(
            paths=sources.Paths(directory / "tls.crt", directory / "tls.key", directory / "ca.crt"),
        )

    def uses(self, material: issuer.Material) -> bool:
        return self.trust.current is not None and issuer.is_of(self.trust.current.issuer, material)

    async def later(self) -> None:
        await self.clock.advance(6)
        await settle(20)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "issuer"


def settled(world: World) -> None:
    world.store("linkerd-config", {"trustDomain": "cluster.local"})
    for name in ("linkerd-config", "linkerd-trust-anchor"):
        world.informer(name).end()


async def test_files_that_are_written_in_place_are_taken_up(directory):
    first, second = issuer.generate(NOW), issuer.generate(NOW)
    write(directory, first)
    world = World(directory)
    settled(world)
    async with world.running():
        await settle(20)
        assert world.uses(first)
        assert (await world.certify()).leaf_certificate
        write(directory, second)
        await world.later()
        assert world.uses(second)
    assert world.source.about.kind == "ServiceAccount"
    assert "IssuerUpdated" in dict(world.events())


async def test_a_directory_that_is_swapped_is_taken_up(directory):
    first, second = issuer.generate(NOW), issuer.generate(NOW)
    # As the kubelet mounts a Secret: links to `..data`, which is a link itself.
    directory.mkdir()
    write(directory / "..1", first)
    write(directory / "..2", second)
    (directory / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (directory / name).symlink_to(f"..data/{name}")
    world = World(directory)
    settled(world)
    async with world.running():
        await settle(20)
        assert world.uses(first)
        (directory / "..new").symlink_to("..2")
        (directory / "..new").rename(directory / "..data")
        await world.later()
        assert world.uses(second)


async def test_files_that_are_not_good_change_nothing(directory):
    first = issuer.generate(NOW)
    write(directory, first)
    world = World(directory)
    settled(world)
    async with world.running():
        await settle(20)
        (directory / "tls.key").write_bytes(keys.generate().to_der())
        await world.later()
        assert world.uses(first)
        assert "IssuerKeyMismatch" in dict(world.events())["IssuerUpdateSkipped"]
        (directory / "ca.crt").unlink()
        await world.later()
        assert world.uses(first)
        write(directory, first)
        await world.later()
        assert world.trust.skipped == ""


async def test_files_that_are_not_there_leave_nothing_to_use(directory):
    world = World(directory)
    settled(world)
    async with world.running():
        await settle(20)
        assert world.trust.current is None
        assert "tls.crt" in world.trust.why_not
        write(directory, issuer.generate(NOW))
        await world.later()
        assert world.trust.current is not None


async def test_the_watchdog_reads_the_files_anew(directory):
    first, second = issuer.generate(NOW), issuer.generate(NOW)
    write(directory, first)
    world = World(directory)
    settled(world)
    world.client.put("configmaps", "linkerd-config", "linkerd", data={"trustDomain": "cluster.local"})
    async with world.running():
        await settle(20)
        write(directory, second)
        await world.watchdog.look()
        await settle(20)
        assert world.uses(second)


async def test_a_key_that_everybody_may_read_is_told_of(directory):
    write(directory, issuer.generate(NOW))
    (directory / "tls.key").chmod(0o644)
    world = World(directory)
    settled(world)
    with capture_logs() as lines:
        async with world.running():
            await settle(20)
            assert world.trust.current is not None
    assert "every user of this machine may read the issuer's key" in [line["event"] for line in lines]
