# SPDX-License-Identifier: Apache-2.0
"""Which services of the mesh a proxy calls, by the variables of its container: where each one is, and whom it has to prove to be.

It calls nothing. A proxy without an identity has no trust anchors, and is not judged here.

| service | address | name of the server |
|---|---|---|
| identity | `LINKERD2_PROXY_IDENTITY_ADDR`; today `LINKERD2_PROXY_IDENTITY_SVC_ADDR` | `LINKERD2_PROXY_IDENTITY_IDENTITY`; today `LINKERD2_PROXY_IDENTITY_SVC_NAME` |
| destination | the same with `DESTINATION` | … |
| policy | the same with `POLICY` | … |
| the channel to agents | the same with `AGENTS` | … |

1. The identity service has an address [ProxyVariableMissing]. The others may have none, and are not called then.
2. An address is HOST:PORT [BadMeshAddress]. Both spellings lead to the same [ProxyVariablesDiffer]; `localhost` with a dot at its end is
   `localhost`.
3. A loopback address is this Pod itself, and is called in plaintext. The seed's variable for its name must not be set
   [ProxyNameOnLoopback]; today's is not read, as a stock proxy does not read it. The channel to agents is TLS wherever it is.
4. Elsewhere there is a name [ProxyVariableMissing], and a certificate can have it [BadProxyIdentity].
5. A variable that is set and empty is a mistake [ProxyVariableEmpty].

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_proxy_clients.py |
|---|---|---|---|---|
| who may edit a template | an address | have tokens sent to a server that proves nothing | 4 | test_elsewhere_a_name_is_needed |
| … | one spelling of an address | have the proxy and a stock one call different servers | 2 | test_two_addresses_for_one_service_are_refused |
| who listens on loopback | the port of the agents' channel | tell an agent whom to let in | 3 | test_the_agents_channel_has_a_name_on_loopback_too |
| who answers DNS | a name that looks local | be called in plaintext | 3 | test_only_loopback_itself_is_called_in_plaintext |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from handfast.rules.mesh import addresses, proxy_environment, sidecar


@dataclass(frozen=True, slots=True)
class Client:
    """One service: where it is, and the name that it has to prove; None in plaintext, on loopback."""

    address: str
    name: str | None


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """The services that a proxy with an identity calls; None where there is no address."""

    identity: Client
    destination: Client | None
    policy: Client | None
    agents: Client | None


def read(variables: Mapping[str, str]) -> Clients:
    """The services that the variables name."""
    return Clients(
        # 1. the only one that is needed
        identity=_client(variables, "IDENTITY"),
        destination=_optional(variables, "DESTINATION"),
        policy=_optional(variables, "POLICY"),
        agents=_optional(variables, "AGENTS", secured=True),
    )


def _optional(variables: Mapping[str, str], word: str, *, secured: bool = False) -> Client | None:
    named = any(name in variables for name in _spellings(word))
    return _client(variables, word, secured=secured) if named else None


def _spellings(word: str) -> tuple[str, str]:
    return f"{sidecar.PREFIX}{word}_ADDR", f"{sidecar.PREFIX}{word}_SVC_ADDR"


def _client(variables: Mapping[str, str], word: str, *, secured: bool = False) -> Client:
    address = _address(variables, word)
    seed, today = f"{sidecar.PREFIX}{word}_IDENTITY", f"{sidecar.PREFIX}{word}_SVC_NAME"
    if addresses.is_loopback(address) and not secured:
        # 3. no name for this Pod itself
        if seed in variables:
            raise proxy_environment.Invalid(
                f"{seed} is set, but {address} is on loopback, where no server proves a name",
                reason="ProxyNameOnLoopback",
                hint=f"unset {seed}, or give the address of the service itself",
            )
        return Client(address, None)
    # 4. a name, elsewhere; 3. and on loopback, of the channel to agents
    values = proxy_environment.stated(variables, (seed, today), f"hold the name that the server at {address} proves")
    variable, name = proxy_environment.agreed(values)
    proxy_environment.require_name(variable, name)
    return Client(address, name)


def _address(variables: Mapping[str, str], word: str) -> str:
    values = proxy_environment.stated(variables, _spellings(word), "hold HOST:PORT of the service")
    for variable, value in values.items():
        # 2. HOST:PORT
        try:
            addresses.require(value)
        except addresses.BadAddress as bad:
            raise proxy_environment.Invalid(f"{variable}: {bad.message}", reason=bad.reason, hint=bad.hint) from None
    # 2. the same place, with or without the dot of a stock proxy
    _, address = proxy_environment.agreed({variable: addresses.absolute(value) for variable, value in values.items()})
    return address
