# SPDX-License-Identifier: Apache-2.0
"""The console, put together with TLS of its own: it is called by the names in its certificate, and its cookie is for HTTPS alone."""

from __future__ import annotations

import pathlib
import socket
import ssl

import aiohttp
import pytest

from handfast import errors
from handfast.assembly import console as assembly
from handfast.assembly import console_settings
from handfast.client import api, connection
from handfast.console import looking, opening
from handfast.pki import authority, keys, names, profiles
from handfast.rules import networks
from handfast.rules.diagnoses import facts
from handfast.runtime import addresses
from handfast.runtime import clock as clocks
from tests.unit.console import served
from tests.world import world as worlds


async def look(client: api.Client, used: connection.Connection, _tell: looking.Tell) -> facts.Facts:
    """A control plane where all is well."""
    return await served.well(client, used)


@pytest.fixture
def pair(tmp_path: pathlib.Path) -> tuple[str, str]:
    """A certificate for console.example and 127.0.0.1, with its key."""
    clock, key = clocks.SystemClock(), keys.generate()
    ca = authority.self_signed_ca(names.Subject(common_name="console-ca"), keys.generate(), clock.now())
    sans = names.Sans.parse(["DNS:console.example", "IP:127.0.0.1"])
    issued = ca.issue(key.public, names.Subject(common_name="console"), sans, profiles.APISERVER_SERVING, clock.now())
    certificate, private = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(issued.pem)
    private.write_bytes(key.to_pem())
    private.chmod(0o600)
    (tmp_path / "ca.crt").write_bytes(ca.pem)
    return str(certificate), str(private)


async def test_with_tls_it_is_called_by_the_names_of_its_certificate(tmp_path: pathlib.Path, pair: tuple[str, str]):
    async with worlds.world(tmp_path / "d", clock=clocks.SystemClock()) as world:
        kubeconfig = served.kubeconfig_of(world, tmp_path / "k.conf", "anna")
        with socket.create_server(("127.0.0.1", 0)) as sock:
            port = sock.getsockname()[1]
            options = assembly.Options(
                kubeconfigs=(str(kubeconfig),),
                listen=addresses.Address("0.0.0.0", port),
                key=opening.new_key(),
                reopen=served.REOPEN,
                pair=pair,
                networks=networks.Networks.parse("127.0.0.0/8"),
            )
            assert options.base == f"https://127.0.0.1:{port}"
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
            connector = aiohttp.TCPConnector(ssl=context)
            async with (
                assembly.served(options, sock, look, clocks.SystemClock()) as codes,
                aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session,
            ):
                opened = await session.get(opening.address(options.base, codes.code()), allow_redirects=False)
                assert opened.status == 303
                assert opened.headers["Set-Cookie"].startswith("__Host-handfast-console=")
                assert opened.headers["Set-Cookie"].endswith("; Secure")
                for host, code in ((f"console.example:{port}", 401), ("localhost:1", 421), (f"localhost:{port}", 421)):
                    answer = await session.get(f"{options.base}/", headers={"Host": host})
                    assert answer.status == code, host


async def test_several_kubeconfigs_are_read_as_one(tmp_path: pathlib.Path):
    async with worlds.world(tmp_path / "d", clock=clocks.SystemClock()) as world:
        path = served.kubeconfig_of(world, tmp_path / "k.conf", "anna")
        options = assembly.Options(
            kubeconfigs=(str(path), str(tmp_path / "none.conf")),
            listen=addresses.Address("127.0.0.1", 0),
            key=opening.new_key(),
            reopen="",
        )
        with socket.create_server(("127.0.0.1", 0)) as sock:
            async with assembly.served(options, sock, look, clocks.SystemClock()) as codes:
                assert codes.code()


def test_the_console_of_up_stays_on_loopback():
    console_settings.require_loopback(addresses.Address("localhost", 8765))
    with pytest.raises(errors.Refused) as refused:
        console_settings.require_loopback(addresses.Address("192.0.2.1", 8765))
    assert refused.value.reason == "ConsoleNotPrivate"
