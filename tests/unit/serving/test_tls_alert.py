# SPDX-License-Identifier: Apache-2.0
"""A client whose certificate is turned away in the handshake is told so, on both event loops and in both versions of TLS."""

import asyncio
import contextlib
import socket
import ssl

import pytest
import uvloop

from handfast import errors
from handfast.api import status
from handfast.client import connection, transport
from handfast.pki import authority, keys, names, profiles
from handfast.serving import tls_alert
from tests.world import tls_cluster
from tests.world.clock import MovableClock

CA = tls_cluster.Authority()


def stranger():
    """A client certificate of a CA that the server does not know, and its key."""
    issuer = authority.self_signed_ca(names.Subject(common_name="another"), keys.generate(), tls_cluster.NOW)
    key = keys.generate()
    subject = names.Subject(common_name="u")
    issued = issuer.issue(key.public, subject, names.Sans(), profiles.KUBELET_CLIENT, tls_cluster.NOW)
    return issued.pem, key.to_pem()


async def met(version, sslobject_class, ask):
    """What the server's side saw, while `ask` is called with the URL."""
    context = CA.context()
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=CA.pem.decode())
    context.maximum_version = version
    context.sslobject_class = sslobject_class
    loop = asyncio.get_running_loop()
    seen: list[object] = []

    async def serve(sock):
        refused = tls_alert.follow()
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(asyncio.Protocol, sock, ssl=context, ssl_handshake_timeout=5)
        sock.close()
        seen.extend(error.verify_code for error in refused)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        asking = asyncio.ensure_future(ask(f"https://127.0.0.1:{listener.getsockname()[1]}"))
        sock, _ = await loop.sock_accept(listener)
        await serve(sock)
        return seen, await asking


async def post(url):
    """As a node would: what is told of the failure."""
    certificate, key = stranger()
    made = connection.Connection(server=url, ca_pem=CA.pem, cert_pem=certificate, key_pem=key)
    link = transport.Transport(made, clock=MovableClock())
    try:
        await link.request("POST", "/x", body=b"{}")
    except errors.HandfastError as error:
        return error
    finally:
        await link.close()


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
UNKNOWN_ISSUER = 20


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version.name)
def test_the_client_is_told_and_reads_it_as_a_401(run, version):
    seen, error = run(met(version, tls_alert.Handshake, post))
    assert seen == [UNKNOWN_ISSUER]
    assert isinstance(error, status.StatusError)
    assert (error.code, error.reason) == (401, "Unauthorized")
    assert error.message.endswith("ended TLS for this client certificate, with the alert 'unknown ca'")


def test_without_it_the_connection_just_ends():
    """Why this module is there; where this fails, the loops have learned to send alerts."""
    seen, error = uvloop.run(met(VERSIONS[1], ssl.SSLObject, post))
    assert seen == []
    assert isinstance(error, errors.Unavailable)
