# SPDX-License-Identifier: Apache-2.0
"""Client CAs that change while a service runs. Handshakes over sockets are in `test_service`."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from structlog.testing import capture_logs

from handfast.pki import keys, pairs
from handfast.runtime import tls
from handfast.serving import server_tls
from tests.unit.pki import making
from tests.world.clock import MovableClock

# TLS itself compares them with the clock of this machine.
LONG: Any = {"not_before": making.NOW - 3650 * making.DAY, "not_after": making.NOW + 3650 * making.DAY}
ROOT = making.ca("root", **LONG)
BETWEEN = making.ca("between", ROOT, **LONG)
SERVER = making.leaf(ROOT, making.SERVER, **LONG)
CLIENT = making.leaf(BETWEEN, making.CLIENT, **LONG)


def pair_of(made: making.Made) -> pairs.Pair:
    return pairs.join(made.pem, keys.PrivateKey(made.key))


def accepted(served: server_tls.ServerTLS) -> bool:
    """Whether a client with a certificate of the intermediate CA gets through a handshake."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(cadata=ROOT.pem.decode())
    pair = pair_of(CLIENT)
    tls.load_pair(client, pair.certificate_pem, pair.key_pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    there = served.context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [here, there]
    for _ in range(10):
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return not waiting and there.getpeercert(binary_form=True) is not None


def served(client_ca: bytes | None) -> server_tls.ServerTLS:
    return server_tls.ServerTLS(lambda: pair_of(SERVER), MovableClock(), client_ca)


def test_an_intermediate_ca_is_trusted_from_the_start_or_later_alike():
    later = served(None)
    later.trust(BETWEEN.pem)
    assert accepted(served(BETWEEN.pem))
    assert accepted(later)


@pytest.mark.parametrize("broken", [b"no certificate", "né".encode()])
def test_what_is_no_ca_changes_nothing(broken):
    service = served(BETWEEN.pem)
    with capture_logs() as logs:
        service.trust(broken)
    assert [line["log_level"] for line in logs] == ["warning"]
    assert accepted(service)
