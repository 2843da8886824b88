# SPDX-License-Identifier: Apache-2.0
"""What is answered over HTTP: the tables of OpenShift's server (pkg/server/api_test.go) by their names, and what is ours beside them."""

from __future__ import annotations

import asyncio
import json

import pytest

from handfast.machines import audit
from handfast.rules.machines import inventory
from tests.unit.machines import asking

SPEC2 = "application/vnd.coreos.ignition+json; version=2.2.0; q=0.9, */*; q=0.1"


def accept(version: str) -> str:
    return f"application/vnd.coreos.ignition+json;version={version}, */*;q=0.1"


# The name, the method, the path, the Accept header; the status, whether it is a configuration.
CONFIG = [
    ("get config path that does not exist", "GET", "/config/does-not-exist", SPEC2, 500, False),
    ("get config path that exists", "GET", "/config/master", SPEC2, 200, True),
    ("head config path that exists", "HEAD", "/config/master", SPEC2, 200, True),
    ("post config path that exists", "POST", "/config/master", SPEC2, 405, False),
    ("get spec v3_1 config path that exists", "GET", "/config/master", accept("3.1.0"), 200, True),
    ("get spec v3_2 config path that exists", "GET", "/config/master", accept("3.2.0"), 200, True),
    ("get spec v3_3 config path that exists", "GET", "/config/master", accept("3.3.0"), 200, True),
    ("get spec v3_4 config path that exists", "GET", "/config/master", accept("3.4.0"), 200, True),
    ("get spec v3_5 config path that exists", "GET", "/config/master", accept("3.5.0"), 200, True),
]
HEALTHZ = [
    ("get healthz", "GET", "/healthz", SPEC2, 200, False),
    ("head healthz", "HEAD", "/healthz", SPEC2, 200, False),
    ("post healthz", "POST", "/healthz", SPEC2, 405, False),
]
DEFAULT = [
    ("get root", "GET", "/", SPEC2, 404, False),
    ("head root", "HEAD", "/", SPEC2, 404, False),
    ("post root", "POST", "/", SPEC2, 405, False),
]
COLUMNS = ("method", "path", "wanted", "status", "is_config")


def rows(table):
    return pytest.mark.parametrize(COLUMNS, [pytest.param(*row[1:], id=row[0]) for row in table])


async def check(method, path, wanted, status, is_config):
    source = asking.Source()
    # Whoever asks for a pool that is not there has to show something that is good there.
    source.networks = "127.0.0.0/8"
    async with asking.serving(source) as server:
        answer = await server.ask(path, method, Accept=wanted)
    assert answer.status == status
    if is_config:
        assert answer.headers["Content-Type"] == "application/json"
        assert int(answer.headers["Content-Length"]) > 1000
        assert (answer.body == b"") == (method == "HEAD")
    else:
        assert answer.headers["Content-Length"] == "0"
        assert answer.body == b""


class TestAPIHandler:
    @rows(CONFIG)
    async def test_the_path_of_configurations_answers_as_openshift(self, method, path, wanted, status, is_config):
        await check(method, path, wanted, status, is_config)


class TestHealthzHandler:
    @rows(HEALTHZ)
    async def test_health_answers_as_openshift(self, method, path, wanted, status, is_config):
        await check(method, path, wanted, status, is_config)


class TestDefaultHandler:
    @rows(DEFAULT)
    async def test_every_other_path_answers_as_openshift(self, method, path, wanted, status, is_config):
        await check(method, path, wanted, status, is_config)


class TestAPIServer:
    @rows([*CONFIG[:4], *HEALTHZ, *DEFAULT])
    async def test_one_server_answers_them_all(self, method, path, wanted, status, is_config):
        await check(method, path, wanted, status, is_config)


@pytest.fixture
def source():
    return asking.Source()


@pytest.fixture
async def server(source):
    async with asking.serving(source) as running:
        yield running


async def test_without_a_proof_nobody_learns_whether_a_pool_is_there(server):
    for path in ("/config/worker", "/config/nobodys"):
        answer = await server.ask(path)
        assert (answer.status, answer.reason, answer.body) == (401, "NoProof", b"")
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="machine-config"'


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("PROXY TCP4 192.0.2.7 192.0.2.8 1 2", b"200"),
        ("PROXY UNKNOWN", b"401"),
        ("PROXY TCP4 198.51.100.7 192.0.2.8 1 2", b"401"),
    ],
)
async def test_behind_a_balancer_a_network_is_that_of_who_is_named(source, header, status):
    source.networks = "127.0.0.0/8,192.0.2.0/24"
    async with asking.serving(source, balancers="127.0.0.0/8") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
        writer.write(f"{header}\r\nGET /config/worker HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answer.split()[1] == status


async def test_another_method_is_405_and_in_the_audit(source):
    before = answered_so_far("405", "MethodNotAllowed")
    async with asking.serving(source) as server:
        answer = await server.ask("/config/worker", "POST", secret=asking.SECRET)
        assert (answer.status, answer.reason, answer.body) == (405, "MethodNotAllowed", b"")
        assert (await server.ask("/healthz", "POST")).reason == ""
    assert answered_so_far("405", "MethodNotAllowed") == before + 1


def answered_so_far(code: str, reason: str) -> float:
    return float(audit.ANSWERS.labels(code, reason, "")._value.get())


async def test_after_a_401_the_connection_ends(server):
    assert (await server.ask("/config/worker", secret="guessed")).headers["Connection"] == "close"
    assert "Connection" not in (await server.ask("/config/worker", secret=asking.SECRET)).headers
    assert "Connection" not in (await server.ask("/config/master", secret=asking.SECRET)).headers


async def test_a_secret_of_another_pool_is_403(server):
    answer = await server.ask("/config/master", secret=asking.SECRET)
    assert (answer.status, answer.reason, answer.body) == (403, "OtherPool", b"")


async def test_a_secret_that_nobody_has_is_401(server):
    assert (await server.ask("/config/worker", secret="guessed")).reason == "UnknownSecret"


@pytest.mark.parametrize("header", ["Basic dTpw", "Bearer", "Bearer "])
async def test_another_way_to_log_in_is_400(server, header):
    answer = await server.ask("/config/worker", Authorization=header)
    assert (answer.status, answer.reason) == (400, "BadAuthorization")


async def test_a_version_that_is_not_served_is_400(server):
    answer = await server.ask("/config/worker", secret=asking.SECRET, Accept=accept("4.0.0"))
    assert (answer.status, answer.reason, answer.body) == (400, "IgnitionVersionUnsupported", b"")


async def test_without_an_accept_header_it_is_the_oldest(server):
    answer = await server.ask("/config/worker", secret=asking.SECRET)
    assert json.loads(answer.body)["ignition"]["version"] == "2.2.0"


async def test_before_everything_is_known_it_is_503(server, source):
    source.missing = "not synced: secrets"
    answer = await server.ask("/config/worker", secret=asking.SECRET)
    assert (answer.status, answer.reason, answer.headers["Retry-After"]) == (503, "NotReady", "5")


@pytest.mark.parametrize(
    "query", ["mac=nonsense", "mac=52:54:00:00:00:01&mac=52:54:00:00:00:02", "serial=a%20b", "mac=ff:ff:ff:ff:ff:ff"]
)
async def test_a_malformed_query_is_400(server, query):
    answer = await server.ask(f"/config/worker?{query}", secret=asking.SECRET)
    assert (answer.status, answer.reason) == (400, "BadQuery")


async def test_other_parameters_are_ignored(server):
    assert (await server.ask("/config/worker?a=b", secret=asking.SECRET)).status == 200


@pytest.mark.parametrize("path", ["/config/", "/config", "/config/a/b", "/configs/worker"])
async def test_a_path_that_names_no_pool_is_404(server, path):
    assert (await server.ask(path, secret=asking.SECRET)).status == 404


async def test_an_oversized_header_is_refused(server):
    assert (await server.ask("/config/worker", secret="x" * 70_000)).status in {400, 431}


async def test_nobody_on_the_way_may_keep_a_configuration(server):
    answer = await server.ask("/config/worker", secret=asking.SECRET)
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_configuration_is_put_together_once(server, source):
    first = await server.ask("/config/worker", secret=asking.SECRET, Accept=accept("3.4.0"))
    again = await server.ask("/config/worker", secret=asking.SECRET, Accept=accept("3.4.0"))
    assert (first.body, source.built) == (again.body, 1)


async def test_hardware_adds_the_name_of_the_machine(server, source):
    address = inventory.Address(inventory.INTERNAL_DNS, "w1.example")
    annotations = {inventory.MAC: "52:54:00:00:00:01"}
    source.machines.put(
        inventory.Machine(
            group=inventory.OPENSHIFT,
            namespace="n",
            name="w1",
            uid="u",
            role="worker",
            addresses=(address,),
            annotations=annotations,
        )
    )
    answer = await server.ask("/config/worker?mac=525400000001", secret=asking.SECRET, Accept=accept("3.4.0"))
    files = {file["path"]: file["contents"]["source"] for file in json.loads(answer.body)["storage"]["files"]}
    assert files["/etc/hostname"] == "data:,w1.example%0A"
    assert asking.MARK.encode() not in answer.body
    bare = await server.ask("/config/worker", secret=asking.SECRET, Accept=accept("3.4.0"))
    assert b"/etc/hostname" not in bare.body


async def test_a_rendering_that_was_changed_is_not_served(server, source):
    source.rendered["worker"]["spec"]["osImageURL"] = "evil"
    answer = await server.ask("/config/worker", secret=asking.SECRET)
    assert (answer.status, answer.reason, answer.body) == (500, "NotARendering", b"")
