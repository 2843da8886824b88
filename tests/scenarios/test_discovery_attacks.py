# SPDX-License-Identifier: Apache-2.0
"""Somebody between a joining machine and its cluster, on a real TLS socket: refused, and none the wiser for it.

Each attack is a way to meet connections and a way to answer requests. The attacker sees all that passes unless it goes
through in TLS of the cluster's own.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping

import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, discovery, endpoints, jws
from handfast.cli import output
from handfast.client import discovery as searching
from handfast.pki.pins import Pin
from tests.world import tls_cluster
from tests.world.clock import MovableClock
from tests.world.tls_cluster import OTHER, TOKEN, Authority, Cluster, Reply

Accept = Callable[[int], ssl.SSLContext | int | bytes | None]
Attack = Callable[[Cluster, Authority], tuple[Accept | ssl.SSLContext, tls_cluster.Respond]]


def evil_kubeconfig(cluster: Cluster, mallory: Authority, *, keep_ca: bool = False) -> str:
    ca = cluster.ca.pem + mallory.pem if keep_ca else mallory.pem
    return cluster_info.build(dataclasses.replace(cluster.info, ca=ca))


def forged_header(header: Mapping[str, str], mac: str) -> str:
    packed = base64.urlsafe_b64encode(json.dumps(header, separators=(",", ":")).encode()).rstrip(b"=").decode()
    return f"{packed}..{mac}"


def rewrites(cluster, mallory):
    genuine = jws.sign(cluster.kubeconfig.encode(), TOKEN.id, TOKEN.secret)
    document = tls_cluster.config_map(evil_kubeconfig(cluster, mallory), abcdef=genuine)
    return mallory.context(), tls_cluster.serve(document)


def strips_all(cluster, mallory):
    return mallory.context(), tls_cluster.serve(tls_cluster.config_map(cluster.kubeconfig))


def strips_ours(cluster, mallory):
    return mallory.context(), tls_cluster.serve(tls_cluster.signed(cluster.kubeconfig, OTHER))


def strips_ours_and_names_both_cas(cluster, mallory):
    """To be asked about the token by whoever trusts a bundle because one certificate of it is pinned."""
    document = tls_cluster.signed(evil_kubeconfig(cluster, mallory, keep_ca=True), OTHER)
    return mallory.context(), tls_cluster.serve(document)


def replays_an_old_ca(cluster, mallory):
    """The cluster had this CA once, and its key has got out."""
    return mallory.context(), tls_cluster.serve(tls_cluster.signed(evil_kubeconfig(cluster, mallory)))


def replays_old_servers(cluster: Cluster, mallory: Authority) -> tuple[Accept, tls_cluster.Respond]:
    """Signed once, with the CA of today. The second connection goes through to the cluster."""
    old = cluster_info.build(dataclasses.replace(cluster.info, servers=("https://127.0.0.1:1", *cluster.info.servers)))
    context = mallory.context()

    def accept(number: int) -> ssl.SSLContext | int:
        return context if number % 2 == 0 else cluster.server.port

    return accept, tls_cluster.serve(tls_cluster.signed(old))


def swaps_kid(cluster, mallory):
    evil = evil_kubeconfig(cluster, mallory)
    other = jws.sign(evil.encode(), OTHER.id, OTHER.secret)
    return mallory.context(), tls_cluster.serve(tls_cluster.config_map(evil, abcdef=other))


def signs_with_another_secret(cluster, mallory):
    evil = evil_kubeconfig(cluster, mallory)
    other = jws.sign(evil.encode(), TOKEN.id, OTHER.secret)
    return mallory.context(), tls_cluster.serve(tls_cluster.config_map(evil, abcdef=other))


def alg_none(cluster, mallory):
    evil = evil_kubeconfig(cluster, mallory)
    signature = forged_header({"alg": "none", "kid": TOKEN.id}, "AAAA")
    return mallory.context(), tls_cluster.serve(tls_cluster.config_map(evil, abcdef=signature))


def alg_none_without_mac(cluster, mallory):
    evil = evil_kubeconfig(cluster, mallory)
    signature = forged_header({"alg": "none", "kid": TOKEN.id}, "")
    return mallory.context(), tls_cluster.serve(tls_cluster.config_map(evil, abcdef=signature))


def another_ca_afterwards(cluster, mallory):
    """What is signed is genuine, and passed on as it is."""
    return mallory.context(), tls_cluster.serve(tls_cluster.signed(cluster.kubeconfig))


def holds_the_token_and_another_ca(cluster, mallory):
    return mallory.context(), tls_cluster.serve(tls_cluster.signed(evil_kubeconfig(cluster, mallory)))


def holds_the_token_and_names_both_cas(cluster, mallory):
    document = tls_cluster.signed(evil_kubeconfig(cluster, mallory, keep_ca=True))
    return mallory.context(), tls_cluster.serve(document)


def redirects(cluster, mallory):
    headers = {"Location": f"{cluster.server.url}{discovery.PATH}"}
    return mallory.context(), lambda _: Reply(302, b"", headers)


def asks_for_a_login(cluster, mallory):
    reply = dataclasses.replace(tls_cluster.status(401, "Unauthorized"), headers={"WWW-Authenticate": "Bearer"})
    return mallory.context(), lambda _: reply


def insecure_cluster_info(cluster, mallory):
    """Somebody with the token who would like TLS not to be looked at."""
    text = cluster.kubeconfig.replace("    server:", "    insecure-skip-tls-verify: true\n    server:", 1)
    return mallory.context(), tls_cluster.serve(tls_cluster.signed(text))


ATTACKS = [
    (rewrites, "SignatureMismatch"),
    (strips_all, "SignatureMissing"),
    (strips_ours, "UnknownTokenID"),
    (strips_ours_and_names_both_cas, "UnknownTokenID"),
    (replays_an_old_ca, "WrongPin"),
    (replays_old_servers, "ClusterInfoChanged"),
    (swaps_kid, "WrongKeyID"),
    (signs_with_another_secret, "SignatureMismatch"),
    (alg_none, "WrongAlgorithm"),
    (alg_none_without_mac, "SignatureMalformed"),
    (another_ca_afterwards, "TLSInterception"),
    (holds_the_token_and_another_ca, "WrongPin"),
    (holds_the_token_and_names_both_cas, "TLSInterception"),
    (redirects, "NotAnAPIServer"),
    (asks_for_a_login, "AnonymousRefused"),
    (insecure_cluster_info, "InsecureClusterInfo"),
]


@pytest.fixture(scope="module")
def mallory() -> Authority:
    # The cluster's own name: only the key differs.
    return Authority()


@contextlib.asynccontextmanager
async def attacked(attack: Attack, mallory: Authority) -> AsyncIterator[tuple[Cluster, tls_cluster.Server]]:
    """The cluster, and somebody who does this to it."""
    async with tls_cluster.cluster() as cluster:
        accept, respond = attack(cluster, mallory)
        async with tls_cluster.listening(accept, respond) as attacker:
            yield cluster, attacker


async def sought(*ports: int, pins: tuple[Pin, ...]) -> tuple[searching.Discovery, searching.Cluster]:
    """What a machine finds that was told these endpoints, in this order."""
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    typed = [endpoints.parse(f"127.0.0.1:{port}") for port in ports]
    found = await tls_cluster.while_time_passes(clock, search.by_token(typed, discovery.ByToken(TOKEN, pins)))
    return search, found


@pytest.mark.parametrize(("attack", "reason"), ATTACKS, ids=[attack.__name__ for attack, _ in ATTACKS])
async def test_refused_and_nothing_leaked(attack: Attack, reason: str, mallory: Authority) -> None:
    async with attacked(attack, mallory) as (cluster, attacker):
        with pytest.raises(errors.HandfastError) as caught:
            await sought(attacker.port, pins=(cluster.ca.pin,))
        assert caught.value.reason == reason
        assert caught.value.hint
        assert TOKEN.secret not in f"{caught.value.message} {caught.value.hint}"
        assert attacker.requests, "the attacker was never asked: this test shows nothing"
        assert attacker.knows_nothing()


@pytest.mark.parametrize("attack", [rewrites, strips_ours, swaps_kid, alg_none, another_ca_afterwards, redirects])
async def test_refused_without_pins_too(attack: Attack, mallory: Authority) -> None:
    async with attacked(attack, mallory) as (_, attacker):
        with pytest.raises(errors.Refused) as caught:
            await sought(attacker.port, pins=())
        assert caught.value.reason == dict(ATTACKS)[attack]
        assert attacker.requests
        assert attacker.knows_nothing()


@pytest.mark.parametrize("attack", [rewrites, strips_all, another_ca_afterwards, redirects])
async def test_an_honest_endpoint_beside_it_is_found(attack: Attack, mallory: Authority) -> None:
    """The attacker is preferred by the order, and answers first."""
    async with attacked(attack, mallory) as (cluster, attacker):
        search, found = await sought(attacker.port, cluster.server.port, pins=(cluster.ca.pin,))
        assert (found.server, found.info) == (cluster.server.url, cluster.info)
        assert await search.login(found, TOKEN, signs=True)
        assert attacker.knows_nothing()
        assert not cluster.server.knows_nothing()


def unreadable_answers() -> dict[str, tls_cluster.Respond]:
    """What has no business in an answer, each in its own way. What is signed is from somebody who has the token."""
    info = {"servers": ["https://a"], "id": "\x1b[2J"}
    hostile = {"cluster": {"server": "https://a", "extensions": [{"name": "handfast.dev/cluster", "extension": info}]}}
    texts = {
        "deep YAML": "a: " + "[" * 100_000,
        "a bomb": "a: &a [x]\n" + "".join(f"b{n}: [*a, *a]\n" for n in range(9)),
        "an escape": json.dumps({"clusters": [{"name": "", **hostile}]}),
        "a name that is none": cluster_info.build(cluster_info.ClusterInfo(("https://a",), None, "")).replace(
            "https://a", f"https://{'a' * 64}.example"
        ),
        "nothing of the kind": "- 1",
    }
    found: dict[str, tls_cluster.Respond] = {
        name: lambda _, text=text: tls_cluster.json_reply(tls_cluster.signed(text))  # type: ignore[misc]
        for name, text in texts.items()
    }
    bodies = {
        "deep JSON": b"[" * 200_000,
        "no UTF-8": b"\xff\xfe",
        "a list": b"[]",
        "lone surrogates": json.dumps(tls_cluster.config_map("a: \udcff", abcdef="x..y")).encode(),
        "a signature of surrogates": json.dumps(tls_cluster.config_map("a: b", abcdef="\udcff..\udcff")).encode(),
        "numbers": b'{"kind":"ConfigMap","metadata":{"name":"cluster-info"},"data":{"kubeconfig":7}}',
        "data that is none": b'{"kind":"ConfigMap","metadata":{"name":"cluster-info"},"data":[]}',
    }
    found |= {name: lambda _, body=body: Reply(200, body) for name, body in bodies.items()}  # type: ignore[misc]
    found["a wrong date"] = lambda _: Reply(200, b"{}", {"Date": "Sun, 99 Nov 2026 25:00:00 -0000"})
    found["headers of octets"] = lambda _: Reply(200, b"{}", {"Date": "\xff\xfe", "WWW-Authenticate": "\x80"})
    found["a length that is none"] = lambda _: Reply(200, b"{}", {"Content-Length": "-1"})
    return found


@pytest.mark.parametrize("name", list(unreadable_answers()))
@pytest.mark.parametrize("pinned", [True, False])
async def test_what_one_server_answers_does_not_stop_the_search_at_others(name: str, pinned: bool) -> None:
    """It is preferred by the order, and answers first."""
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    async with (
        tls_cluster.cluster() as cluster,
        tls_cluster.listening(Authority().context(), unreadable_answers()[name]) as bad,
    ):
        typed = [endpoints.parse(f"127.0.0.1:{port}") for port in (bad.port, cluster.server.port)]
        method = discovery.ByToken(TOKEN, (cluster.ca.pin,) if pinned else ())
        found = await tls_cluster.while_time_passes(clock, search.by_token(typed, method))
        assert (found.server, found.info) == (cluster.server.url, cluster.info)
        assert bad.requests, "it was never asked: this test shows nothing"
        assert bad.knows_nothing()
        # Alone, it is an error like any other.
        with pytest.raises(errors.HandfastError) as caught:
            await tls_cluster.while_time_passes(clock, search.by_token(typed[:1], method))
        assert output.printable(caught.value.message) == caught.value.message


async def test_nor_does_an_answer_that_makes_us_stumble(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever nobody has thought of."""
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    reading = discovery.read_config_map

    def stumbling(body: bytes, where: str) -> discovery.Published:
        if body == b"{}":
            raise ZeroDivisionError("hunter2")
        return reading(body, where)

    monkeypatch.setattr(discovery, "read_config_map", stumbling)
    async with (
        tls_cluster.cluster() as cluster,
        tls_cluster.listening(Authority().context(), lambda _: Reply(200, b"{}")) as bad,
    ):
        typed = [endpoints.parse(f"127.0.0.1:{port}") for port in (bad.port, cluster.server.port)]
        method = discovery.ByToken(TOKEN, (cluster.ca.pin,))
        found = await tls_cluster.while_time_passes(clock, search.by_token(typed, method))
        assert found.server == cluster.server.url
        assert bad.requests
        with pytest.raises(errors.Refused) as caught:
            await tls_cluster.while_time_passes(clock, search.by_token(typed[:1], method))
        assert caught.value.reason == "BadAnswer"
        assert caught.value.message == f"{bad.url}: its answer cannot be understood (ZeroDivisionError)"


async def test_a_discovery_file_is_no_reason_to_trust_another_ca(mallory: Authority) -> None:
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    async with (
        tls_cluster.cluster() as cluster,
        tls_cluster.listening(mallory.context(), tls_cluster.serve(None)) as attacker,
    ):
        text = cluster_info.build(dataclasses.replace(cluster.info, servers=(attacker.url,)))
        with pytest.raises(errors.Refused) as caught:
            await tls_cluster.while_time_passes(clock, search.by_document(text, ()))
        assert caught.value.reason == "TLSInterception"
        assert attacker.connections
        assert attacker.read == b""
