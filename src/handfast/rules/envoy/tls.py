# SPDX-License-Identifier: Apache-2.0
"""TLS between meshed workloads, for both sides, and the secrets it is made of. It verifies nothing itself: Envoy does.

1. TLS 1.3 and nothing else, on both sides.
2. A session is never resumed: each handshake proves the present certificate anew.
3. A server asks for a client's certificate, does without one, and refuses one that the trust anchors do not prove.
4. A client sends the name of the endpoint as SNI, and accepts that name alone: no wildcard that would cover it. It shows its own certificate only
   where `certified` says that it has one in force.
5. No ALPN is set for clients: Envoy offers what it is going to speak.
6. Key, chain and anchors are PEM, inline: they never touch a disk.

| who | holding | tries | stopped by | shown in tests/scenarios/test_envoy_states.py |
|---|---|---|---|---|
| a client | a certificate of another authority | be taken for a workload of the mesh | 3 | test_a_client_of_another_authority_or_past_its_end_is_refused |
| a former workload | a certificate that has expired | go on with new connections | 3 | test_a_client_of_another_authority_or_past_its_end_is_refused |
"""

from __future__ import annotations

import base64
import re
from typing import Final

from handfast import errors
from handfast.rules.envoy import resources

IDENTITY: Final = "identity"
ANCHORS: Final = "anchors"
_TLS: Final = "envoy.extensions.transport_sockets.tls.v3"
_SOCKET: Final = "envoy.transport_sockets.tls"
# 1. TLS 1.3
_VERSION: Final = "TLSv1_3"
_NAME: Final = re.compile(r"[0-9a-z.-]{1,253}", re.ASCII)
# No name of a certificate is that.
_NOBODY: Final = "/"


def identity(chain_pem: bytes, key_pem: bytes) -> resources.Document:
    """The own certificate with what leads to a trust anchor, and its key (PKCS #8)."""
    return {
        "name": IDENTITY,
        "tls_certificate": {"certificate_chain": _inline(chain_pem), "private_key": _inline(key_pem)},
    }


def anchors(bundle_pem: bytes) -> resources.Document:
    """What peers are verified with."""
    return {"name": ANCHORS, "validation_context": {"trusted_ca": _inline(bundle_pem)}}


def downstream() -> resources.Document:
    """The transport socket of a server."""
    return resources.extension(
        _SOCKET,
        f"{_TLS}.DownstreamTlsContext",
        # 3. a certificate is optional
        require_client_certificate=False,
        # 2. never resumed
        disable_stateless_session_resumption=True,
        disable_stateful_session_resumption=True,
        common_tls_context={**_context(certified=True), "alpn_protocols": ["h2", "http/1.1"]},
    )


def upstream(name: str, *, certified: bool) -> resources.Document:
    """The transport socket of a client, to endpoints that prove this name; nobody proves an empty one."""
    # 4. the endpoint's name, letter for letter
    literal = {"regex": _literal(name) if name else _NOBODY}
    only = [{"san_type": "DNS", "matcher": {"safe_regex": literal}}]
    context = _context(certified=certified)
    anchors = context.pop("validation_context_sds_secret_config")
    context["combined_validation_context"] = {
        "default_validation_context": {"match_typed_subject_alt_names": only},
        "validation_context_sds_secret_config": anchors,
    }
    return resources.extension(
        _SOCKET,
        f"{_TLS}.UpstreamTlsContext",
        sni=name,
        # 2. never resumed
        max_session_keys=0,
        # 5. what is going to be spoken
        common_tls_context={**context, "alpn_protocols": []},
    )


def _literal(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise errors.Misuse(f"{name!r} is no name that an endpoint could prove")
    return name.replace(".", r"\.")


def _context(*, certified: bool) -> resources.Document:
    context = {
        "tls_params": {"tls_minimum_protocol_version": _VERSION, "tls_maximum_protocol_version": _VERSION},
        "validation_context_sds_secret_config": _secret(ANCHORS),
    }
    return {**context, "tls_certificate_sds_secret_configs": [_secret(IDENTITY)]} if certified else context


def _secret(name: str) -> resources.Document:
    return {"name": name, "sds_config": resources.source()}


def _inline(pem: bytes) -> resources.Document:
    return {"inline_bytes": base64.b64encode(pem).decode()}
