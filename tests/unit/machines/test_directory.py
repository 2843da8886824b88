# SPDX-License-Identifier: Apache-2.0
"""What is served before there is a cluster, from files; with TestBootstrapServer of OpenShift's pkg/server/server_test.go."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from handfast import errors
from handfast.datadir import bootstrap_secrets, machine_credentials
from handfast.machines import directory, offers
from handfast.rules import networks
from handfast.rules.machine_config import credential, ignition_secrets, names, rendering, requester
from tests.unit.machines import asking
from tests.world.clock import MovableClock

NOW = MovableClock().now()
KUBECONFIG = machine_credentials.KUBECONFIG_FILE


def source(root: pathlib.Path) -> directory.Directory:
    return directory.Directory(root, KUBECONFIG, networks=networks.Networks.parse("none"), kubelet_ca=lambda: b"a CA\n")


def write(root: pathlib.Path, name: str, *documents: object) -> None:
    (root / name).write_text(yaml.safe_dump_all(documents))


@pytest.fixture
def root(tmp_path):
    place = tmp_path / "bootstrap"
    machine_credentials.create(place, "https://api-int.example:6443", None, NOW)
    write(place, "99-master.yaml", asking.config("99-master", "master", etc_motd="hello"))
    return place


def offered(served: directory.Directory, pool: str = "master") -> offers.Offer:
    offer = served.offer(pool, "")
    assert isinstance(offer, offers.Offer), offer
    return offer


def refused(served: directory.Directory, pool: str = "master") -> requester.Refusal:
    refusal = served.offer(pool, "")
    assert isinstance(refusal, requester.Refusal)
    return refusal


class TestBootstrapServer:
    def test_masters_are_served_what_the_cluster_would_render(self, root):
        offer = offered(source(root))
        text = (root / KUBECONFIG).read_bytes()
        assert offer.kubeconfig == text
        # What the render controller makes of the same objects, when the Secret has this kubeconfig.
        seen = credential.Seen(trusted=True, masters_kubeconfig=text)
        held = credential.choose("master", seen)
        assert isinstance(held, credential.Credential)
        later = rendering.render("master", [asking.config("99-master", "master", etc_motd="hello")], held, "another")
        assert offer.rendering == later["metadata"]["name"]

    def test_no_other_pool_is_served(self, root):
        refusal = refused(source(root), "test-pool")
        assert (refusal.status, refusal.reason) == (500, "NotBeforeTheCluster")
        assert refusal.sentence == 'refusing to serve bootstrap configuration to pool "test-pool"'


def test_without_its_kubeconfig_it_is_404(tmp_path):
    refusal = refused(source(tmp_path))
    assert (refusal.status, refusal.reason) == (404, "NoFile")
    assert refusal.sentence == f"there is no {tmp_path / KUBECONFIG}"


def test_arbiters_need_a_pool_of_their_own(root):
    served = source(root)
    assert refused(served, "arbiter").status == 404
    selector = {"matchLabels": {names.ROLE_LABEL: "arbiter"}}
    pool = {"kind": "MachineConfigPool", "metadata": {"name": "arbiter"}, "spec": {"machineConfigSelector": selector}}
    write(root, "pools.yml", pool)
    served.known()
    assert offered(served, "arbiter").rendering.startswith("rendered-arbiter-")


def test_the_secret_of_the_pool_is_that_of_a_file(root):
    served = source(root)
    assert served.known().secrets == {}
    bootstrap_secrets.keep(root, "master", "hush", None)
    known = served.known()
    request = requester.Request(pool="master", address="192.0.2.1", secret="hush")
    assert isinstance(requester.judge(request, known, NOW), requester.Allowed)
    assert known.pool_of("n1") is None
    assert served.not_ready() is None


def test_files_that_change_are_read_again_and_what_cannot_be_used_changes_nothing(root):
    served = source(root)
    first = offered(served).rendering
    write(root, "99-master.yaml", asking.config("99-master", "master", etc_motd="bye"))
    served.known()
    second = offered(served).rendering
    assert first != second
    (root / "99-master.yaml").write_text("{")
    served.known()
    assert offered(served).rendering == second
    (root / "99-master.yaml").unlink()
    served.known()
    assert offered(served).rendering not in {first, second}


@pytest.mark.parametrize("broken", ["{", "kind: !%ED%A0%80 x\n"])
def test_a_secret_that_was_deleted_has_ended_whatever_else_is_wrong(root, broken):
    kept = bootstrap_secrets.keep(root, "master", "hush", None)
    write(root, "other.yaml", {"kind": "Other"})
    served = source(root)
    assert len(served.known().secrets) == 1
    (root / "other.yaml").write_text(broken)
    # What can be read goes on, and the rendering with it.
    assert len(served.known().secrets) == 1
    offered(served)
    kept.unlink()
    assert served.known().secrets == {}
    offered(served)
    bootstrap_secrets.keep(root, "master", "hush again", None)
    assert len(served.known().secrets) == 1


def test_a_secret_in_a_file_that_cannot_be_read_does_not_count(root):
    kept = bootstrap_secrets.keep(root, "master", "hush", None)
    served = source(root)
    kept.write_text(kept.read_text() + "---\n{")
    assert served.known().secrets == {}


def test_no_secret_counts_once_others_may_write_to_the_directory(root):
    bootstrap_secrets.keep(root, "master", "hush", None)
    served = source(root)
    root.chmod(0o777)
    write(root, "theirs.yaml", ignition_secrets.for_pool("master", "of somebody else"))
    assert served.known().secrets == {}


def test_a_kubeconfig_that_was_deleted_is_not_served_whatever_else_is_wrong(root):
    served = source(root)
    (root / "99-master.yaml").write_text("{")
    (root / KUBECONFIG).unlink()
    served.known()
    assert (refused(served).status, refused(served).reason) == (404, "NoFile")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.yaml": "{"}, "a.yaml: line"),
        ({"a.yaml": 'kind: "\\ud800"\n'}, "a.yaml: line 1: found invalid Unicode character escape code"),
        ({"a.yaml": "kind: !%ED%A0%80 x\n"}, "a.yaml: a tag in it is not valid UTF-8"),
        ({"a.yaml": "- 1\n"}, "a document in it is no object"),
        ({"a.yaml": "kind: MachineConfig\nmetadata: {name: 99-master}\n"}, "MachineConfig 99-master is in"),
        ({KUBECONFIG: "nonsense"}, "kubeconfig"),
        ({KUBECONFIG: "apiVersion: v1\nkind: Config\n"}, "kubeconfig"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(root, files, words):
    for name, text in files.items():
        (root / name).write_text(text)
    with pytest.raises(errors.Refused) as caught:
        source(root)
    assert words in caught.value.message
    assert caught.value.reason == directory.BAD_DIRECTORY
    assert str(root) in caught.value.message


def test_broken_ignition_names_the_machine_config(root):
    broken = asking.config("50-broken", "master")
    broken["spec"]["config"]["storage"]["files"] = [{"path": "../etc/passwd"}]
    write(root, "50-broken.yaml", broken)
    with pytest.raises(errors.Refused, match="50-broken") as caught:
        source(root)
    assert caught.value.reason == "IgnitionInvalid"
    assert "the pool master cannot be rendered" in caught.value.message


def test_two_configs_that_contradict_are_refused(root):
    write(root, "a.yaml", asking.config("50-a", "master", etc_x="1"), asking.config("51-b", "master", etc_x_y="2"))
    with pytest.raises(errors.Refused) as caught:
        source(root)
    assert caught.value.reason == "MachineConfigsContradict"


def test_a_directory_that_others_may_write_to_is_refused(root):
    root.chmod(0o777)
    with pytest.raises(errors.Refused, match="can be written by others"):
        source(root)


def test_a_directory_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(errors.Refused, match="there is no directory"):
        source(tmp_path / "none")


def test_other_kinds_are_left_alone(root):
    kinds = {each["kind"] for each in yaml.safe_load_all((root / machine_credentials.MANIFEST_FILE).read_text())}
    assert kinds == {"Namespace", "ConfigMap"}
    assert offered(source(root)).rendering.startswith("rendered-master-")
