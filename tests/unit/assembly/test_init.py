# SPDX-License-Identifier: Apache-2.0
"""A directory's own API while its first objects are written: who may call, where from, and what stays afterwards."""

import json

import pytest

from handfast.assembly import config, init
from handfast.client import api
from handfast.client import tokens as over_api
from handfast.datadir import layout, preparation
from handfast.runtime import addresses, clock, routes
from handfast.store.sqlite import engine

ENDPOINTS = api.Resource("", "v1", "endpoints", namespaced=True)
SERVICES = api.Resource("", "v1", "services", namespaced=True)


def configuration(**flags):
    return config.resolve({"listen": "127.0.0.1:7777", **flags}, {}, {}, "").configuration


@pytest.fixture
def place(tmp_path):
    made = layout.Layout.at(tmp_path / "d")
    preparation.prepare(made, server=addresses.Address("127.0.0.1", 7777), now=clock.SystemClock().now())
    return made


@pytest.mark.parametrize("source, server", [("", "https://127.0.0.1:1"), ("198.51.100.1", "https://198.51.100.1:1")])
def test_newcomers_are_told_what_is_advertised_or_an_address_for_other_machines(monkeypatch, source, server):
    monkeypatch.setattr(routes, "source", lambda _host: source)
    listen, one, two = (addresses.Address(host, 1) for host in ("0.0.0.0", "a", "b"))
    assert init.servers(listen, ()) == (server,)
    assert init.servers(listen, (one, two)) == ("https://a:1", "https://b:1")


async def test_served_and_gone(place):
    chosen = configuration(advertise=["192.0.2.7:7777"])
    async with init.served(place, chosen, clock.SystemClock()) as client:
        assert "+handfast" in await over_api.version(client)
        service = await client.get(SERVICES, "kubernetes", namespace="default")
        found = await client.get(ENDPOINTS, "kubernetes", namespace="default")
    # Where it will listen, not where it listened meanwhile.
    assert service["spec"]["ports"][0]["targetPort"] == 7777
    assert found["subsets"][0]["ports"][0]["port"] == 7777
    assert {row["ip"] for row in found["subsets"][0]["addresses"]} == {"192.0.2.7", "127.0.0.1"}
    lines = [json.loads(line) for line in (place.audit / "audit.log").read_text().splitlines()]
    assert {line["user"]["username"] for line in lines} == {"kubernetes-admin"}
    # Nobody has the store open any more.
    await (await engine.open_store(str(place.store("store.db")))).close()


@pytest.mark.parametrize("path", ["none", "-"])
async def test_standard_output_is_no_place_for_the_audit_log(place, capfd, path):
    async with init.served(place, configuration(audit_log_path=path), clock.SystemClock()) as client:
        await over_api.version(client)
    # A slow machine may log that a request held the loop: that is no line of an audit log.
    assert "auditID" not in capfd.readouterr().out
    assert not (place.audit / "audit.log").exists()


async def test_a_failure_ends_the_server_too(place):
    with pytest.raises(ZeroDivisionError):
        async with init.served(place, configuration(), clock.SystemClock()):
            raise ZeroDivisionError
    await (await engine.open_store(str(place.store("store.db")))).close()
