# SPDX-License-Identifier: Apache-2.0
"""What a machine says of itself: its name, its addresses, its labels."""

from __future__ import annotations

import socket

import pytest

from handfast import errors
from handfast.node import machine
from handfast.runtime import routes

MACHINE = machine.Machine(
    name="worker-1", hostname="worker-1.example", addresses=("192.0.2.7", "2001:db8::7"), port=10250, kernel="6.1"
)


class TestMachine:
    def test_labels_have_their_present_and_their_old_names(self):
        assert MACHINE.labels == {
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/os": "linux",
            "beta.kubernetes.io/arch": "amd64",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "worker-1.example",
        }

    def test_a_host_name_too_long_for_a_label(self):
        long = machine.Machine(name="n", hostname="a" * 64, addresses=())
        assert "kubernetes.io/hostname" not in long.labels
        assert long.node_addresses == [{"type": "Hostname", "address": "a" * 64}]

    def test_addresses_end_with_the_host_name(self):
        assert MACHINE.node_addresses == [
            {"type": "InternalIP", "address": "192.0.2.7"},
            {"type": "InternalIP", "address": "2001:db8::7"},
            {"type": "Hostname", "address": "worker-1.example"},
        ]

    def test_of_this_machine(self, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "os-release").write_text('NAME=x\nPRETTY_NAME="Some Linux 1"\n')
        (tmp_path / "etc" / "machine-id").write_text("abc\n")
        found = machine.this_machine("n", ("192.0.2.1",), 10250, tmp_path)
        assert (found.name, found.port, found.image, found.machine_id, found.boot_id) == (
            "n",
            10250,
            "Some Linux 1",
            "abc",
            "",
        )
        assert found.architecture not in {"x86_64", "aarch64"}

    def test_no_file_says_what_it_runs(self, tmp_path):
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "os-release").write_text("NAME=x\n")
        assert machine.this_machine("n", (), 0, tmp_path).image == ""


class TestName:
    def test_of_the_host(self, monkeypatch):
        monkeypatch.setattr(socket, "gethostname", lambda: "Host.Example")
        assert machine.node_name() == "host.example"

    @pytest.mark.parametrize("name", ["", "a b", "a_b", "-a", "a" * 254])
    def test_a_host_name_that_no_node_can_have_is_refused(self, monkeypatch, name):
        monkeypatch.setattr(socket, "gethostname", lambda: name)
        with pytest.raises(errors.Refused) as refused:
            machine.node_name()
        assert refused.value.reason == "BadNodeName"
        assert "--node-name" in str(refused.value.hint)


class TestAddresses:
    def test_addresses_that_are_named_count(self):
        assert machine.addresses(("192.0.2.1", "2001:db8::1"), "https://a") == ("192.0.2.1", "2001:db8::1")

    def test_the_way_to_the_server(self, monkeypatch):
        sources = {"api.example": "192.0.2.9", "192.0.2.1": "198.51.100.1"}
        monkeypatch.setattr(routes, "source", lambda host: sources.get(host, ""))
        assert machine.addresses((), "https://api.example:6443") == ("192.0.2.9",)
        # A server on this machine: the way out.
        sources["api.example"] = "127.0.0.1"
        assert machine.addresses((), "https://api.example:6443") == ("198.51.100.1",)
        # No way out: then loopback.
        del sources["192.0.2.1"]
        assert machine.addresses((), "https://api.example:6443") == ("127.0.0.1",)
        sources.clear()
        assert machine.addresses((), "https://api.example:6443") == ()
