# SPDX-License-Identifier: Apache-2.0
"""Somebody between a joining machine and its cluster, on a real TLS socket: refused, and none the wiser for it.

Each attack is a way to meet connections and a way to answer requests. The attacker sees all that passes unless it goes
through in TLS of the cluster's own.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import ssl
from collections.abc import Callable, Mapping

import pytest

from handfast import errors
from handfast.bootstrap import cluster_info, discovery, endpoints, jws
from handfast.client import discovery as searching
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


@pytest.mark.parametrize(("attack", "reason"), ATTACKS, ids=[attack.__name__ for attack, _ in ATTACKS])
async def test_refused_and_nothing_leaked(attack: Attack, reason: str, mallory: Authority) -> None:
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    async with tls_cluster.cluster() as cluster:
        accept, respond = attack(cluster, mallory)
        async with tls_cluster.listening(accept, respond) as attacker:
            typed = [endpoints.parse(f"127.0.0.1:{attacker.port}")]
            method = discovery.ByToken(TOKEN, (cluster.ca.pin,))
            with pytest.raises(errors.HandfastError) as caught:
                await tls_cluster.while_time_passes(clock, search.by_token(typed, method))
            assert caught.value.reason == reason
            assert caught.value.hint
            assert TOKEN.secret not in f"{caught.value.message} {caught.value.hint}"
            assert attacker.requests, "the attacker was never asked: this test shows nothing"
            assert attacker.knows_nothing()


@pytest.mark.parametrize("attack", [rewrites, strips_ours, swaps_kid, alg_none, another_ca_afterwards, redirects])
async def test_refused_without_pins_too(attack: Attack, mallory: Authority) -> None:
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    async with tls_cluster.cluster() as cluster:
        accept, respond = attack(cluster, mallory)
        async with tls_cluster.listening(accept, respond) as attacker:
            typed = [endpoints.parse(f"127.0.0.1:{attacker.port}")]
            with pytest.raises(errors.Refused):
                await tls_cluster.while_time_passes(clock, search.by_token(typed, discovery.ByToken(TOKEN, ())))
            assert attacker.requests
            assert attacker.knows_nothing()


@pytest.mark.parametrize("attack", [rewrites, strips_all, another_ca_afterwards, redirects])
async def test_an_honest_endpoint_beside_it_is_found(attack: Attack, mallory: Authority) -> None:
    """The attacker is preferred by the order, and answers first."""
    clock = MovableClock()
    search = searching.Discovery(clock, timeout=60.0)
    async with tls_cluster.cluster() as cluster:
        accept, respond = attack(cluster, mallory)
        async with tls_cluster.listening(accept, respond) as attacker:
            typed = [endpoints.parse(f"127.0.0.1:{port}") for port in (attacker.port, cluster.server.port)]
            method = discovery.ByToken(TOKEN, (cluster.ca.pin,))
            found = await tls_cluster.while_time_passes(clock, search.by_token(typed, method))
            assert (found.server, found.info) == (cluster.server.url, cluster.info)
            assert await search.login(found, TOKEN, signs=True)
            assert attacker.knows_nothing()
            assert not cluster.server.knows_nothing()


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
