# SPDX-License-Identifier: Apache-2.0
"""The certificate of the node's endpoint: self-signed or issued, looked for at every handshake."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import socket
import ssl
import stat

import pytest
import structlog
from prometheus_client import core

from handfast import errors
from handfast.api import signer_names
from handfast.node import endpoint, serving
from handfast.pki import certificates as x509
from handfast.pki import keys, names, pairs, pem, profiles
from handfast.runtime import files, tls
from handfast.serving import server_tls
from handfast.telemetry import health
from tests.world.clock import MovableClock
from tests.world.tls_cluster import Authority

HOSTS = serving.sans("worker-1", ("127.0.0.1",))
DAY = 86400.0


def current(made: serving.SelfSigned) -> pairs.Pair:
    """The pair of a SelfSigned."""
    return made.current()


class TestNames:
    def test_each_once_and_in_order(self):
        found = serving.sans("n", ("2001:db8::1", "192.0.2.9", "192.0.2.1", "192.0.2.9"))
        assert found.dns == ("n",)
        assert [str(address) for address in found.ip] == ["192.0.2.1", "192.0.2.9", "2001:db8::1"]

    def test_what_is_asked_for(self):
        found = serving.wanted("n", "host", ("192.0.2.1",))
        assert found is not None
        assert found.signer == signer_names.KUBELET_SERVING
        assert str(found.subject) == "CN=system:node:n,O=system:nodes"
        assert found.sans == names.Sans(dns=("host",), ip=(ipaddress.ip_address("192.0.2.1"),))

    def test_without_an_address_nothing_is(self):
        assert serving.wanted("n", "host", ()) is None


class TestSelfSigned:
    @pytest.fixture
    def clock(self):
        return MovableClock()

    def test_made_once(self, tmp_path, clock):
        directory = tmp_path / "pki"
        made = serving.SelfSigned(directory, HOSTS, clock)
        pair = current(made)
        assert current(made) is pair
        assert stat.S_IMODE((directory / serving.KEY).stat().st_mode) == 0o600
        assert current(serving.SelfSigned(directory, HOSTS, clock)).chain == pair.chain
        assert pair.leaf.usages == {"digital signature", "server auth"}
        assert len(pair.chain) == 2

    async def test_made_anew_in_time(self, tmp_path, clock):
        made = serving.SelfSigned(tmp_path, HOSTS, clock)
        first = current(made)
        await clock.advance(200 * DAY)
        assert current(made) is first
        await clock.advance(50 * DAY)
        second = current(made)
        assert second.leaf.not_after > first.leaf.not_after

    @pytest.mark.parametrize("name", [serving.KEY, serving.CERTIFICATE])
    def test_what_cannot_be_used_is_made_anew(self, tmp_path, clock, name):
        first = current(serving.SelfSigned(tmp_path, HOSTS, clock))
        (tmp_path / name).write_bytes(b"broken")
        with structlog.testing.capture_logs() as lines:
            second = current(serving.SelfSigned(tmp_path, HOSTS, clock))
        assert second.chain != first.chain
        assert lines[0]["event"] == "the self-signed pair is made anew"

    def test_a_crash_between_the_two_files(self, tmp_path, clock):
        current(serving.SelfSigned(tmp_path, HOSTS, clock))
        (tmp_path / serving.KEY).write_bytes(keys.generate().to_pem())
        pair = current(serving.SelfSigned(tmp_path, HOSTS, clock))
        assert pairs.join((tmp_path / serving.CERTIFICATE).read_bytes(), pair.key).chain == pair.chain

    def test_a_key_that_others_could_read_is_replaced(self, tmp_path, clock):
        first = current(serving.SelfSigned(tmp_path, HOSTS, clock))
        (tmp_path / serving.KEY).chmod(0o644)
        assert current(serving.SelfSigned(tmp_path, HOSTS, clock)).chain != first.chain

    def test_other_addresses(self, tmp_path, clock):
        first = current(serving.SelfSigned(tmp_path, HOSTS, clock))
        other = serving.sans("worker-1", ("127.0.0.1", "192.0.2.1"))
        assert current(serving.SelfSigned(tmp_path, other, clock)).chain != first.chain

    def test_no_host_name(self, tmp_path, clock):
        made = current(serving.SelfSigned(tmp_path, serving.sans("", ("127.0.0.1",)), clock))
        assert made.leaf.subject.common_name.startswith("node@")

    async def test_a_full_disk(self, tmp_path, clock, monkeypatch):
        """Health and metrics are wanted then most of all: the pair serves from memory, and is written when it can be."""

        def full(*_, **__):
            raise errors.Unavailable("no space left on device", reason="DiskFull")

        made = serving.SelfSigned(tmp_path / "pki", HOSTS, clock)
        with structlog.testing.capture_logs() as lines, monkeypatch.context() as patched:
            patched.setattr(files, "write_atomically", full)
            pair = current(made)
            assert current(made) is pair
            await clock.advance(59)
            assert current(made) is pair
            async with served(made.current, None, clock) as port:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                assert "200 OK" in (await ask(port, context))[1]
        assert [line["reason"] for line in lines if line["log_level"] == "warning"] == ["DiskFull"]
        await clock.advance(2)
        assert current(made) is pair
        assert current(serving.SelfSigned(tmp_path / "pki", HOSTS, clock)).chain == pair.chain


def issued(ca, *, client=False, days=1):
    """A pair of the cluster's CA."""
    key = keys.generate()
    subject = names.Subject(common_name="system:node:n", organizations=("system:nodes",))
    profile = profiles.KUBELET_CLIENT if client else profiles.KUBELET_SERVING
    now = datetime.datetime.now(datetime.UTC)
    made = ca._ca.issue(key.public, subject, names.Sans() if client else HOSTS, profile, now, datetime.timedelta(days))
    return pairs.join(made.pem, key)


@contextlib.asynccontextmanager
async def served(current, ca, clock, wrong=None):
    """The endpoint, and its port."""
    made = server_tls.ServerTLS(current, clock, ca.pem if ca else None)
    doors = endpoint.Endpoint(health.Health(live={"lease": lambda: wrong}), core.CollectorRegistry(), clock)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        await doors.start(listener, made)
        try:
            yield listener.getsockname()[1]
        finally:
            await doors.stop()


async def ask(port, context, path="/healthz"):
    """The certificate that was shown, and the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    with contextlib.suppress(OSError, ssl.SSLError):
        await writer.wait_closed()
    return x509.read(shown), answer


class TestTLS:
    async def test_the_pair_of_the_moment(self):
        ca = Authority()
        held = [issued(ca)]
        async with served(lambda: held[0], ca, MovableClock()) as port:
            first, answer = await ask(port, tls.client_context(ca.pem))
            assert answer.startswith("HTTP/1.1 200")
            assert answer.endswith("ok")
            assert first.serial == held[0].leaf.serial
            again, _ = await ask(port, tls.client_context(ca.pem))
            assert again.serial == first.serial
            held[0] = issued(ca)
            second, _ = await ask(port, tls.client_context(ca.pem))
            assert second.serial == held[0].leaf.serial != first.serial

    async def test_no_pair_yet(self):
        ca = Authority()
        clock = MovableClock()
        held = [None]
        with structlog.testing.capture_logs() as lines:
            async with served(lambda: held[0], ca, clock) as port:
                for _ in range(2):
                    with pytest.raises((ssl.SSLError, ConnectionError)):
                        await ask(port, tls.client_context(ca.pem))
                await clock.advance(61)
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    await ask(port, tls.client_context(ca.pem))
                held[0] = issued(ca)
                assert (await ask(port, tls.client_context(ca.pem)))[1].startswith("HTTP/1.1 200")
        told = [line for line in lines if line["event"].startswith("no serving certificate available")]
        assert len(told) == 2

    async def test_a_client_of_the_cluster(self):
        ca = Authority()
        pair, client = issued(ca), issued(ca, client=True)
        async with served(lambda: pair, ca, MovableClock(), "late") as port:
            context = tls.client_context(ca.pem, client.certificate_pem, client.key_pem)
            assert "lease failed: late" in (await ask(port, context))[1]

    async def test_a_client_of_another_ca_is_turned_away(self):
        ca = Authority()
        pair, client = issued(ca), issued(Authority("other"), client=True)
        async with served(lambda: pair, ca, MovableClock()) as port:
            context = tls.client_context(ca.pem, client.certificate_pem, client.key_pem)
            # TLS 1.3 tells the client after it has spoken: an error, or no answer.
            with contextlib.suppress(ssl.SSLError, ConnectionError):
                assert (await ask(port, context))[1] == ""

    async def test_the_ca_of_now_counts(self):
        """A CA that is retired is not believed any more, a new one is; both without a restart."""
        ca, other = Authority(), Authority("other")
        pair = issued(ca)
        shown = {name: issued(one, client=True) for name, one in (("old", ca), ("new", other))}
        made = server_tls.ServerTLS(lambda: pair, MovableClock(), None)

        async def let_in(port):
            found = set()
            for name, client in shown.items():
                with contextlib.suppress(ssl.SSLError, ConnectionError):
                    context = tls.client_context(ca.pem, client.certificate_pem, client.key_pem)
                    if (await ask(port, context))[1].endswith("ok"):
                        found.add(name)
            return found

        doors = endpoint.Endpoint(health.Health(), core.CollectorRegistry(), MovableClock())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            await doors.start(listener, made)
            port = listener.getsockname()[1]
            # Nobody is asked for a certificate.
            assert await let_in(port) == {"old", "new"}
            made.trust(ca.pem)
            assert await let_in(port) == {"old"}
            made.trust(other.pem)
            assert await let_in(port) == {"new"}
            made.trust(None)
            assert await let_in(port) == {"old", "new"}
            await doors.stop()

    async def test_without_a_known_ca_nobody_is_asked(self, tmp_path):
        clock = MovableClock()
        made = serving.SelfSigned(tmp_path, HOSTS, clock)
        async with served(made.current, None, clock) as port:
            root = pem.certificates_to_pem([current(made).chain[-1]])
            assert (await ask(port, tls.client_context(root)))[1].endswith("ok")
