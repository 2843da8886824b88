# SPDX-License-Identifier: Apache-2.0
"""What is judged for each request, on connections that are open, too: it travels with the routes. Who is denied and permitted, others say.

1. A request on a connection whose client certificate has expired meanwhile is refused.
2. So is one of a client whose certificate is denied, by its SHA-256, or whose name is. Every DNS name of the certificate is looked at.
3. A script sees to these, and writes its verdict into a header that nobody else can write: those from outside are gone before. Where the script
   fails, or did not run, there is no verdict, and the request is refused: by itself Envoy would let it pass.
4. Where only some may call, who is none of them is refused. Who has shown no certificate has no name, and in plaintext nobody has.
5. Each port has its own rules. Where one table of routes is for all ports, the port that the client called tells them apart; one that has no rules
   of its own has those of port 0, and without such a row nobody may.
6. What probes ask (GET, the whole path, without a body) is open to everybody.
7. In audit a refusal is counted (`shadow_denied`), and changes no answer. What is refused anyway is not counted: not what is by its certificate, and
   not who has no name where `anonymous` says so.
8. Each refusal is counted by its reason: `track_per_rule_stats`.
9. Denied names and digests are keys of maps in the script, names of clients keys of maps in the matcher. A hundred principals, tried one by one, cost half
   as much CPU again; a map of a thousand costs nothing. In the script a thousand names take 4 ms to be sent, in the matcher they took 26.
10. A digest is 64 hex digits, and a name has the letters of a name: nothing else gets into a script or a map.
11. The script also sees who calls, for `observing`: after its verdict, which does not depend on that.

A certificate of the mesh has one DNS name: that is the identity service's to see to. Of several, none is in the map of clients: Envoy joins them by commas.

| who | holding | tries | stopped by | shown in tests/scenarios/test_envoy_judging.py |
|---|---|---|---|---|
| a former workload | a connection that is open | go on past the end of its certificate | 1 | test_a_client_certificate_that_ends_is_refused_on_its_open_connection |
| who took over a workload | … | go on after the revocation | 2 | test_the_deny_list_reaches_an_open_connection |
| … | … | bring a verdict of its own in a header | 3 | test_a_verdict_from_outside_counts_for_nothing |
| a client | a header that CGI takes for `l5d-client-id` | be another for the application | 3 | test_nobody_brings_a_name_of_his_own_however_it_is_spelled |
| … | a certificate of the mesh, or none | call what a policy keeps for others | 4 | test_policy_reaches_an_open_connection |
| … | the path of a probe | reach more than the probe does | 6 | test_probes_stay_open_and_nothing_else_does |
| … | … | a WebSocket, or a second request as the body of the first | 6 | test_a_probe_is_no_door_for_more_than_its_path |
| … | a port that is open | reach another one by the same table | 5 | test_one_table_of_routes_judges_by_the_port_that_was_called |
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from handfast import errors
from handfast.rules.envoy import observing, resources, stripping

RBAC: Final = "envoy.filters.http.rbac"
LUA: Final = "envoy.filters.http.lua"
_RBAC: Final = "envoy.extensions.filters.http.rbac.v3"
_LUA: Final = "envoy.extensions.filters.http.lua.v3"
_DNS_SAN: Final = "envoy.extensions.matching.common_inputs.ssl.v3.DnsSanInput"
_PORT: Final = "envoy.extensions.matching.common_inputs.network.v3.DestinationPortInput"
_HEADER: Final = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
_ACTION: Final = "envoy.config.rbac.v3.Action"
_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
# What can be compared with the name of a certificate.
NAME: Final = re.compile(r"[0-9a-z.-]{1,253}", re.ASCII)
# Of a row: every port that has none of its own.
OTHER_PORTS: Final = 0
# What the script says. It is removed with the other headers of the mesh before the application gets the request.
VERDICT: Final = "l5d-verdict"
_GOOD: Final = "good"
# The reasons of refusals, as the header `l5d-proxy-error` has them, and as Envoy counts them.
EXPIRED: Final = "certificate-expired"
REVOKED: Final = "certificate-revoked"
DENIED: Final = "identity-revoked"
NOT_JUDGED: Final = "certificate-not-judged"
NOT_ALLOWED: Final = "not-allowed-by-policy"
IDENTITY_REQUIRED: Final = "identity-required"
NOT_KNOWN: Final = "policy-not-known"
OWN_EXPIRED: Final = "own-certificate-expired"
_OF_CERTIFICATES: Final = (EXPIRED, REVOKED, DENIED)
REASONS: Final = (*_OF_CERTIFICATES, NOT_JUDGED, NOT_ALLOWED, IDENTITY_REQUIRED, NOT_KNOWN, OWN_EXPIRED)
_ALLOWED: Final = "allowed"
_ANY_NAME: Final = {"safe_regex": {"google_re2": {}, "regex": ".+"}}
# 11. who calls is seen after the verdict, and whatever comes of that
_SCRIPT: Final = f"""\
local digests = {{%s}}
local names = {{%s}}
local function verdict(handle)
  local ssl = handle:streamInfo():downstreamSslConnection()
  if ssl == nil or not ssl:peerCertificatePresented() then return "good", "" end
  local own = ssl:dnsSansPeerCertificate()
  local peer = own[1] or ""
  if ssl:expirationPeerCertificate() <= os.time() then return "certificate-expired", peer end
  if digests[ssl:sha256PeerCertificateDigest()] then return "certificate-revoked", peer end
  for _, name in pairs(own) do
    if names[name] then return "identity-revoked", peer end
  end
  return "good", peer
end
{observing.SCRIPT}\
function envoy_on_request(handle)
  local judged, why, peer = pcall(verdict, handle)
  if judged then
    handle:headers():replace("l5d-verdict", why)
    pcall(observe, handle, peer)
  end
end
"""


@dataclass(frozen=True, slots=True)
class Permits:
    """Who may call: everybody, everybody with an identity, or clients by their names and by what names end in; and who has no name, with `anonymous`."""

    anyone: bool = False
    identified: bool = False
    anonymous: bool = False
    names: frozenset[str] = frozenset()
    suffixes: tuple[str, ...] = ()


EVERYBODY: Final = Permits(anyone=True)


@dataclass(frozen=True, slots=True)
class Deny:
    """Who is refused whatever a policy says: clients by their names, and certificates by the hex of their SHA-256."""

    names: frozenset[str] = frozenset()
    digests: frozenset[str] = frozenset()


NOBODY_DENIED: Final = Deny()


@dataclass(frozen=True, slots=True, kw_only=True)
class PortJudgement:
    """Who may call a port, and who might if what is in audit were enforced (None: nothing is); `reason` is why the others may not.

    `open_paths` are those of probes.
    """

    port: int = OTHER_PORTS
    permits: Permits = EVERYBODY
    audited: Permits | None = None
    reason: str = NOT_ALLOWED
    open_paths: tuple[str, ...] = ()

    @property
    def tcp(self) -> bool:
        """Whether connections may be passed on of which nothing is known: plaintext that is no HTTP, and TLS that is not ours."""
        return self.permits.anyone


# What holds for connections that an own certificate made which has ended.
OVER: Final = PortJudgement(permits=Permits(), reason=OWN_EXPIRED)


def filters() -> list[resources.Document]:
    """The filters in a listener: they judge nothing by themselves, the routes say what."""
    return [
        # By `l5d-orig-proto` routes are chosen before a filter runs, and not again when the script has written its header.
        # 3. every header of the mesh's own that comes from outside
        stripping.requests(),
        resources.extension(LUA, f"{_LUA}.Lua", clear_route_cache=False),
        resources.extension(RBAC, f"{_RBAC}.RBAC"),
    ]


def script(deny: Deny) -> resources.Document:
    """What sees to certificates, as the routes of TLS have it."""
    # 1. expired; 2. denied; 9. maps
    return _lua(_SCRIPT % (_keys(deny.digests, _DIGEST), _keys(deny.names, NAME)))


def observed() -> resources.Document:
    """What only sees who calls, as the routes of plaintext have it."""
    return _lua(observing.PLAINTEXT_SCRIPT)


def unobserved() -> resources.Document:
    """As routes of plaintext have it that nobody needs to know of."""
    return resources.typed(f"{_LUA}.LuaPerRoute", disabled=True)


def _lua(text: str) -> resources.Document:
    return resources.typed(f"{_LUA}.LuaPerRoute", source_code={"inline_string": text})


def matcher(rows: Sequence[PortJudgement], *, proved: bool, path: str = "") -> resources.Document:
    """Who may call, as routes have it: of TLS (`proved`) or of plaintext, for every path or for one that probes ask."""
    rules = {"matcher": _by_port(rows, lambda row: _judged(row, path, proved=proved)), "track_per_rule_stats": True}
    if any(row.audited is not None for row in rows):
        # 7. counted only
        rules["shadow_matcher"] = _by_port(rows, lambda row: _audited(row, path, proved=proved))
    return resources.typed(f"{_RBAC}.RBACPerRoute", rbac=rules)


def _judged(row: PortJudgement, path: str, *, proved: bool) -> resources.Document:
    # 6. open to everybody
    if path in row.open_paths:
        return _action(_ALLOWED, "ALLOW")
    if not proved:
        return _plaintext(row.permits, row.reason)
    # 3. no verdict, no request
    refused = {why: _action(why, "DENY") for why in _OF_CERTIFICATES}
    return _verdict({**refused, _GOOD: _permitted(row.permits, row.reason)}, _action(NOT_JUDGED, "DENY"))


def _audited(row: PortJudgement, path: str, *, proved: bool) -> resources.Document:
    allowed = _action(_ALLOWED, "ALLOW")
    if row.audited is None or path in row.open_paths:
        return allowed
    if not proved:
        return _plaintext(row.audited, row.reason)
    # 7. what is refused anyway is not counted
    return _verdict({_GOOD: _permitted(row.audited, row.reason)}, allowed)


def _by_port(
    rows: Sequence[PortJudgement], judged: Callable[[PortJudgement], resources.Document]
) -> resources.Document:
    # 5. each port has its own
    nodes = {row.port: judged(row) for row in rows}
    if len(nodes) == 1:
        return {"on_no_match": next(iter(nodes.values()))}
    others = nodes.pop(OTHER_PORTS, _action(NOT_ALLOWED, "DENY"))
    return _tree(_input("destination_port", _PORT), {str(port): node for port, node in nodes.items()}, others)


def _verdict(rows: Mapping[str, resources.Document], otherwise: resources.Document) -> resources.Document:
    return {"matcher": _tree(_input("verdict", _HEADER, header_name=VERDICT), rows, otherwise)}


def _plaintext(permits: Permits, reason: str) -> resources.Document:
    # 4. nobody has a name; Envoy fails where it is to compare one
    anyone = permits.anyone or permits.anonymous
    return _permitted(Permits(anyone=anyone), IDENTITY_REQUIRED if permits.identified else reason)


def _permitted(permits: Permits, reason: str) -> resources.Document:
    # 4. who is none of them
    if permits.anyone:
        return _action(_ALLOWED, "ALLOW")
    if permits.anonymous:
        named = _permitted(dataclasses.replace(permits, anonymous=False), reason)
        return _list([_ANY_NAME], named, _action(_ALLOWED, "ALLOW"))
    if permits.identified:
        return _list([_ANY_NAME], _action(_ALLOWED, "ALLOW"), _action(IDENTITY_REQUIRED, "DENY"))
    endings = [{"suffix": each} for each in _checked(permits.suffixes, NAME)]
    otherwise = _action(reason, "DENY")
    otherwise = _list(endings, _action(_ALLOWED, "ALLOW"), otherwise) if endings else otherwise
    allowed = {name: _action(_ALLOWED, "ALLOW") for name in _checked(permits.names, NAME)}
    # 9. names are keys
    return {"matcher": _tree(_input("dns_san", _DNS_SAN), allowed, otherwise)} if allowed else otherwise


def _tree(
    value: resources.Document, rows: Mapping[str, resources.Document], otherwise: resources.Document
) -> resources.Document:
    return {"matcher_tree": {"input": value, "exact_match_map": {"map": dict(rows)}}, "on_no_match": otherwise}


def _list(
    matches: Iterable[resources.Document], node: resources.Document, otherwise: resources.Document
) -> resources.Document:
    rows = [
        {
            "predicate": {"single_predicate": {"input": _input("dns_san", _DNS_SAN), "value_match": match}},
            "on_match": node,
        }
        for match in matches
    ]
    return {"matcher": {"matcher_list": {"matchers": rows}, "on_no_match": otherwise}}


def _input(name: str, kind: str, **fields: str) -> resources.Document:
    return resources.extension(f"envoy.matching.inputs.{name}", kind, **fields)


def _action(name: str, action: str) -> resources.Document:
    # 8. counted by its name
    return {"action": resources.extension(name, _ACTION, name=name, action=action)}


def _keys(values: Iterable[str], form: re.Pattern[str]) -> str:
    return "".join(f'["{value}"]=true,' for value in _checked(values, form))


def _checked(values: Iterable[str], form: re.Pattern[str]) -> list[str]:
    rows = sorted(values)
    for value in rows:
        # 10. nothing else gets in
        if not form.fullmatch(value):
            raise errors.Misuse(f"{value!r} is neither a name nor a digest that the proxy could compare")
    return rows
