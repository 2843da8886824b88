# SPDX-License-Identifier: Apache-2.0
"""What is scraped of a certificate keeper, name by name."""

from __future__ import annotations

import asyncio
import pathlib

from prometheus_client import core

from handfast import errors
from handfast.node import certificate_metrics, certificate_store, certificates
from handfast.rules.certificates import wishes
from tests.unit.node import pairing
from tests.world.clock import START, MovableClock, settle


class Keeper(certificates.CertificateKeeper):
    """One that gets its pairs at once."""

    def __init__(self, directory: pathlib.Path, clock: MovableClock) -> None:
        store = certificate_store.CertificateStore(directory, "kubelet-server", clock)
        wanted = wishes.node_client("n1")
        super().__init__(store, lambda: wanted, lambda: None, clock=clock, chance=lambda: 0.0)  # type: ignore[arg-type, return-value]
        self.fail = False

    async def _renewed(self, wanted: wishes.Wanted, seconds: float):
        if self.fail:
            raise errors.Unavailable("down")
        return pairing.pair(begins=self._clock.now(), lasts=10 * pairing.HOUR)


def scrape(registry: core.CollectorRegistry) -> dict[str, str]:
    lines = certificate_metrics.exposed(registry).decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


async def test_every_name(tmp_path: pathlib.Path):
    clock = MovableClock()
    keeper = Keeper(tmp_path, clock)
    registries = {}
    for side in (certificate_metrics.CLIENT, certificate_metrics.SERVER):
        registries[side] = core.CollectorRegistry()
        registries[side].register(certificate_metrics.CertificateMetrics(keeper, side, clock))
    client = scrape(registries["client"])
    assert client == {
        "kubelet_certificate_manager_client_expiration_seconds": "+Inf",
        "kubelet_certificate_manager_client_ttl_seconds": "+Inf",
        "kubelet_certificate_manager_client_expiration_renew_errors": "0.0",
        "handfast_node_client_certificate_renewal_seconds": "+Inf",
    }
    keeper.fail = True
    running = asyncio.create_task(keeper.run())
    await settle(20)
    keeper.fail = False
    await clock.advance(2.5)
    await settle(20)
    keeper.renew_now()
    await settle(20)
    await clock.advance(0.5)
    running.cancel()
    await asyncio.wait([running])
    ends = START.timestamp() + 2.5 + 36000
    found = scrape(registries["server"])
    assert int(float(found["kubelet_certificate_manager_server_expiration_seconds"])) == int(ends)
    assert found["kubelet_certificate_manager_server_ttl_seconds"] == "35999.0"
    assert found["kubelet_certificate_manager_server_expiration_renew_errors"] == "1.0"
    assert found["kubelet_server_expiration_renew_errors"] == "1.0"
    assert float(found["handfast_node_server_certificate_renewal_seconds"]) < ends
    assert found['kubelet_certificate_manager_server_rotation_seconds_bucket{le="60"}'] == "1.0"
    assert found["kubelet_certificate_manager_server_rotation_seconds_count"] == "1.0"
    assert 'kubelet_certificate_manager_server_rotation_seconds_bucket{le="124416000"}' in found
    assert scrape(registries["client"])["kubelet_certificate_manager_client_ttl_seconds"] == "35999.0"
    assert "kubelet_server_expiration_renew_errors" not in scrape(registries["client"])
    types = [
        line.removeprefix("# TYPE ")
        for registry in registries.values()
        for line in certificate_metrics.exposed(registry).decode().splitlines()
        if line.startswith("# TYPE ") and "errors" in line
    ]
    assert types == [
        "kubelet_certificate_manager_client_expiration_renew_errors counter",
        "kubelet_certificate_manager_server_expiration_renew_errors counter",
        "kubelet_server_expiration_renew_errors counter",
    ]
