# SPDX-License-Identifier: Apache-2.0
"""Who is at the other end, and whether it is this machine."""

from __future__ import annotations

import pytest

from handfast.serving import peer


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "::1", "::1%lo", "::ffff:127.0.0.1"])
def test_this_machine(address):
    assert peer.is_loopback(address)


@pytest.mark.parametrize("address", ["", "192.0.2.1", "2001:db8::1%eth0", "::ffff:192.0.2.1", "localhost", "unix"])
def test_not_this_machine(address):
    assert not peer.is_loopback(address)


@pytest.mark.parametrize("chain", [(b"a", b"bc"), (b"abc",), (b"a", b"b", b"c"), (b"ab", b"c", b"")])
def test_chains_that_differ_in_their_joints_have_different_hashes(chain):
    assert peer.Peer.of(chain, "", "tls").chain_hash != peer.Peer.of((b"ab", b"c"), "", "tls").chain_hash
    assert peer.Peer.of((), "", "tls").chain_hash == b""
