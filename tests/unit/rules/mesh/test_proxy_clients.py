# SPDX-License-Identifier: Apache-2.0
"""The services that a proxy calls: every spelling, the rule of loopback, and what no proxy starts with."""

from __future__ import annotations

import pytest

from handfast.rules.mesh import proxy_clients, proxy_environment
from handfast.rules.mesh.proxy_clients import Client

P = "LINKERD2_PROXY_"
SERVER = "linkerd-identity.linkerd.sa.linkerd-identity.linkerd.cluster.local"
OTHER = "linkerd-controller.linkerd.sa.linkerd-identity.linkerd.cluster.local"
WORDS = ("IDENTITY", "DESTINATION", "POLICY", "AGENTS")
LOCAL = {f"{P}IDENTITY_ADDR": "127.0.0.1:8080"}


def refusal(variables: dict[str, str]) -> tuple[str, str]:
    with pytest.raises(proxy_environment.Invalid) as refused:
        proxy_clients.read(variables)
    return refused.value.reason, refused.value.message


def named(word: str, address: str = "192.0.2.1:8080", name: str = SERVER) -> dict[str, str]:
    """The seed's two variables of one service."""
    return {f"{P}{word}_ADDR": address, f"{P}{word}_IDENTITY": name}


def test_the_seeds_variables_and_todays_are_read():
    variables = named("IDENTITY") | named("DESTINATION", "dst.example:8086", OTHER)
    variables |= {f"{P}POLICY_SVC_ADDR": "[2001:db8::1]:8090", f"{P}POLICY_SVC_NAME": OTHER}
    assert proxy_clients.read(variables) == proxy_clients.Clients(
        identity=Client("192.0.2.1:8080", SERVER),
        destination=Client("dst.example:8086", OTHER),
        policy=Client("[2001:db8::1]:8090", OTHER),
        agents=None,
    )


def test_only_the_identity_service_is_needed():
    assert proxy_clients.read(LOCAL) == proxy_clients.Clients(
        identity=Client("127.0.0.1:8080", None), destination=None, policy=None, agents=None
    )
    assert refusal({}) == ("ProxyVariableMissing", f"{P}IDENTITY_ADDR is not set, although a name is")


@pytest.mark.parametrize("word", [word for word in WORDS if word != "AGENTS"])
@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "localhost:1", "localhost.:1"])
def test_on_loopback_the_seeds_name_is_an_error_and_todays_is_ignored(word, address):
    assert refusal(LOCAL | named(word, address))[0] == "ProxyNameOnLoopback"
    today = LOCAL | {f"{P}{word}_ADDR": address, f"{P}{word}_SVC_NAME": SERVER}
    client = getattr(proxy_clients.read(today), word.lower())
    assert client.name is None


@pytest.mark.parametrize("word", WORDS)
def test_elsewhere_a_name_is_needed(word):
    reason, message = refusal(LOCAL | {f"{P}{word}_ADDR": "192.0.2.1:8080"})
    assert (reason, message) == ("ProxyVariableMissing", f"{P}{word}_IDENTITY is not set, although a name is")


@pytest.mark.parametrize("address", ["a.localhost:1", "localhost.example:1", "128.0.0.1:1"])
def test_only_loopback_itself_is_called_in_plaintext(address):
    assert refusal({f"{P}IDENTITY_ADDR": address})[0] == "ProxyVariableMissing"
    assert proxy_clients.read(named("IDENTITY", address)).identity.name == SERVER


def test_two_addresses_for_one_service_are_refused():
    both = LOCAL | {f"{P}IDENTITY_SVC_ADDR": "192.0.2.1:8080"}
    assert refusal(both)[0] == "ProxyVariablesDiffer"
    same = {f"{P}IDENTITY_ADDR": "localhost:8080", f"{P}IDENTITY_SVC_ADDR": "localhost.:8080"}
    assert proxy_clients.read(same).identity == Client("localhost.:8080", None)


def test_two_names_for_one_service_are_refused():
    assert refusal(named("IDENTITY") | {f"{P}IDENTITY_SVC_NAME": OTHER})[0] == "ProxyVariablesDiffer"
    assert proxy_clients.read(named("IDENTITY") | {f"{P}IDENTITY_SVC_NAME": SERVER}).identity.name == SERVER


@pytest.mark.parametrize("address", ["8080", "192.0.2.1", "192.0.2.1:0", "192.0.2.1:70000", "2001:db8::1:80", "a b:1"])
def test_what_is_no_address_is_refused(address):
    reason, message = refusal(named("IDENTITY", address))
    assert reason == "BadMeshAddress"
    assert message.startswith(f"{P}IDENTITY_ADDR: ")


def test_the_agents_channel_has_a_name_on_loopback_too():
    local = {f"{P}AGENTS_ADDR": "127.0.0.1:8089"}
    assert refusal(LOCAL | local)[0] == "ProxyVariableMissing"
    agents = proxy_clients.read(LOCAL | local | {f"{P}AGENTS_IDENTITY": SERVER}).agents
    assert agents == Client("127.0.0.1:8089", SERVER)


def test_an_empty_variable_is_a_mistake():
    assert refusal({f"{P}IDENTITY_ADDR": ""})[0] == "ProxyVariableEmpty"
    assert refusal(LOCAL | {f"{P}POLICY_SVC_ADDR": " "})[0] == "ProxyVariableEmpty"
    assert refusal(named("IDENTITY", name=""))[0] == "ProxyVariableEmpty"


@pytest.mark.parametrize("name", ["*.cluster.local", "single", "a..b", "spiffe://a/b"])
def test_a_name_that_no_certificate_has_is_refused(name):
    assert refusal(named("IDENTITY", name=name))[0] == "BadProxyIdentity"
