# SPDX-License-Identifier: Apache-2.0
"""What a reset removes, and what it leaves. The names of the table in `node/reset.py` are here."""

from __future__ import annotations

import pathlib

import pytest

from handfast import errors
from handfast.bootstrap import cluster_extension, kubeconfig
from handfast.client import connection
from handfast.node import certificate_store, kubeconfig_file, report, reset, units
from handfast.runtime import files
from tests.unit.node import pairing
from tests.world import clock as clocks

SERVER = "https://192.0.2.1:6443"


class Machine:
    """A machine that has joined, below a temporary directory."""

    def __init__(self, root: pathlib.Path) -> None:
        self.clock = clocks.MovableClock()
        self.places = reset.Places(
            directory=root / "pki",
            kubeconfig=root / "kubelet.conf",
            bootstrap_kubeconfig=root / "bootstrap.conf",
            unit_directory=root / "units",
        )
        self.told: list[reset.Findings] = []

    def join(self, node: str = "worker-1") -> None:
        directory = self.places.directory
        directory.mkdir(exist_ok=True)
        files.lock_directory(directory).release()
        store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, self.clock)
        store.save(pairing.pair(node))
        report.write(directory, report.Report(node=node, pid=1, written="2026-11-18T00:00:00Z"))
        kubeconfig_file.write(
            self.places.kubeconfig, connection.Connection(server=SERVER, ca_pem=pairing.CA.pem), store.current
        )

    def look(self) -> reset.Findings:
        return reset.look(self.places, self.clock)

    def reset(self) -> reset.Findings:
        return reset.carry_out(self.places, self.clock, self.told.append)

    def left(self) -> set[str]:
        root = self.places.directory.parent
        return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> Machine:
    return Machine(tmp_path)


def test_a_machine_that_never_joined_has_nothing_to_forget(machine: Machine) -> None:
    assert machine.look().nothing
    assert machine.reset().nothing
    assert machine.left() == set()


def test_all_that_the_agent_wrote_goes(machine: Machine) -> None:
    machine.join()
    directory = machine.places.directory
    store = certificate_store.CertificateStore(directory, certificate_store.CLIENT, machine.clock)
    store.pending_key()
    report.ask_to_rotate(directory)
    for name in ("kubelet.crt", "kubelet.key", ".kubelet-client-2026-11-16-02-09-35.pem.77.tmp"):
        (directory / name).write_text("x")
    machine.places.unit_directory.mkdir()
    machine.places.unit.write_text(units.text(["/usr/bin/handfast"]))
    before = machine.look()
    assert (before.node, len(before.pairs), before.unit) == ("worker-1", 1, machine.places.unit)
    assert before.kept == ()
    # The identity goes last of all, and the lock after it.
    assert before.removed[-1] == machine.places.lock
    assert "kubelet-client" in before.removed[-2].name or before.removed[-2].name == report.STATUS
    assert machine.reset() == before
    assert machine.told == [before]
    assert machine.left() == set()
    assert machine.reset().nothing


def test_what_the_agent_did_not_write_stays_and_is_told(machine: Machine) -> None:
    machine.join()
    directory = machine.places.directory
    (directory / "notes.txt").write_text("mine")
    (directory / "kubelet-server-current.pem").write_text("a file where the agent makes links")
    (directory / "kubelet-client-2026-01-01-00-00-00.pem").mkdir()
    machine.places.unit_directory.mkdir()
    machine.places.unit.write_text("[Service]\n")
    machine.places.bootstrap_kubeconfig.write_text("{}")
    findings = machine.reset()
    assert findings.unit is None
    assert {each.path.name for each in findings.kept} == {
        *("notes.txt", "kubelet-server-current.pem", "kubelet-client-2026-01-01-00-00-00.pem"),
        *(units.NAME, "bootstrap.conf"),
    }
    assert machine.left() == {
        *("pki/notes.txt", "pki/kubelet-server-current.pem", f"units/{units.NAME}", "bootstrap.conf"),
    }


def test_a_kubeconfig_of_somebody_else_stays(machine: Machine) -> None:
    machine.join()
    text = machine.places.kubeconfig.read_text().replace("kubelet-client-current", "another")
    machine.places.kubeconfig.write_text(text)
    assert [each.path for each in machine.reset().kept] == [machine.places.kubeconfig]


@pytest.mark.parametrize(("beside", "goes"), [((SERVER,), True), ((), False)], ids=["join's", "kubeadm's"])
def test_only_a_bootstrap_kubeconfig_of_join_goes(machine: Machine, beside: tuple[str, ...], goes: bool) -> None:
    text = kubeconfig.render(
        kubeconfig.Kubeconfig(
            context="c",
            cluster=kubeconfig.Cluster(
                name="kubernetes",
                server=SERVER,
                certificate_authority_data=pairing.CA.pem,
                beside=cluster_extension.Extension("", beside),
            ),
            user=kubeconfig.User(name=reset.BOOTSTRAP_USER, token="abcdef.0123456789abcdef"),
        )
    )
    machine.places.bootstrap_kubeconfig.write_text(text)
    machine.reset()
    assert machine.places.bootstrap_kubeconfig.exists() is not goes


def test_a_kubelets_directory_is_left_alone(machine: Machine) -> None:
    machine.join()
    machine.places.lock.unlink()
    before = machine.left()
    findings = machine.reset()
    assert findings.nothing
    assert any("no agent of Handfast" in each.why for each in findings.kept)
    assert machine.left() == before


def test_a_directory_of_somebody_else_is_left_alone(machine: Machine) -> None:
    machine.join()
    machine.places.directory.chmod(0o777)
    with pytest.raises(errors.Refused) as refused:
        machine.reset()
    assert refused.value.reason == "DirectoryNotPrivate"
    assert "--cert-dir" in str(refused.value.hint)


def test_a_link_is_removed_and_what_it_leads_to_stays(machine: Machine, tmp_path: pathlib.Path) -> None:
    machine.join()
    precious = tmp_path / "precious"
    precious.write_text("x")
    current = machine.places.directory / "kubelet-client-current.pem"
    current.unlink()
    current.symlink_to(precious)
    (machine.places.directory / "kubelet-client-2025-01-01-00-00-00.pem").symlink_to(precious)
    findings = machine.reset()
    assert precious.read_text() == "x"
    # The agent makes no link of that name.
    assert [each.path.name for each in findings.kept] == ["kubelet-client-2025-01-01-00-00-00.pem"]


def test_nothing_goes_while_an_agent_runs(machine: Machine) -> None:
    machine.join()
    before = machine.left()
    lock = files.lock_directory(machine.places.directory)
    try:
        with pytest.raises(errors.Refused) as refused:
            machine.reset()
    finally:
        lock.release()
    assert refused.value.reason == "DirectoryInUse"
    assert (machine.left(), machine.told) == (before, [])


def test_what_fails_before_the_files_go_leaves_them_all(machine: Machine) -> None:
    machine.join()
    before = machine.left()

    def fails(_findings: reset.Findings) -> None:
        raise errors.Unavailable("no server", reason="Unreachable")

    with pytest.raises(errors.Unavailable):
        reset.carry_out(machine.places, machine.clock, fails)
    assert machine.left() == before
    assert machine.reset().node == "worker-1"


def test_a_node_without_a_readable_certificate_is_named_by_its_agent(machine: Machine) -> None:
    machine.join()
    for path in machine.places.directory.glob("kubelet-client-2*.pem"):
        path.write_text("broken")
    assert (machine.look().node, machine.look().pairs) == ("worker-1", ())
    report_file = machine.places.directory / report.STATUS
    report_file.unlink()
    assert machine.look().node == ""
    machine.reset()
    assert machine.left() == set()
