# SPDX-License-Identifier: Apache-2.0
"""Manifests in a directory: which count, what is wrong with those that do not, and that nobody is waited for."""

from __future__ import annotations

import asyncio
import json

import pytest
import structlog

from handfast import errors
from handfast.node import static_pods
from handfast.runtime import files
from tests.world.clock import MovableClock, settle

POD = """
apiVersion: v1
kind: Pod
metadata: {name: etcd}
spec:
  containers:
  - {name: c, image: registry.example/etcd:3}
"""


@pytest.fixture
def observed(tmp_path):
    return static_pods.StaticPods(tmp_path, "worker-1", MovableClock())


def text(**more):
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    return json.dumps({**document, **more})


def spec(**more):
    return text(spec={"containers": [{"name": "c", "image": "i"}], **more})


class TestManifests:
    def test_a_pod(self, tmp_path):
        found = static_pods.read(tmp_path / "a", POD.encode(), "worker-1")
        assert (found.namespace, found.name) == ("default", "etcd-worker-1")
        assert found.document["spec"]["nodeName"] == "worker-1"
        assert found.document["spec"]["restartPolicy"] == "Always"
        assert len(found.digest) == 64

    def test_its_own_namespace(self, tmp_path):
        data = text(metadata={"name": "p", "namespace": "kube-system"}).encode()
        assert static_pods.read(tmp_path, data, "n").namespace == "kube-system"

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("{", "yaml parse error"),
            ("- a\n", "must be an object"),
            ("", "must be an object"),
            (text(kind="Deployment"), "kind: 'Deployment' is not supported; it must be 'Pod'"),
            (text(apiVersion="v2"), "apiVersion: 'v2' is not supported; it must be 'v1'"),
            (text(metadata={}), "metadata.name: Required value"),
            (text(metadata=None), "metadata.name: Required value"),
            (text(metadata={"name": "Upper"}), "metadata.name: Invalid value"),
            (text(spec={"containers": []}), "spec.containers: Required value"),
            (text(spec=None), "spec.containers: Required value"),
            (text(spec={"containers": "c"}), "cannot unmarshal"),
            (text(spce={}), "spce: unknown field"),
            (POD + "kind: Pod\n", "kind: given twice"),
            (spec(serviceAccountName="a"), "spec: it names serviceaccounts"),
            (spec(volumes=[{"name": "v", "secret": {"secretName": "s"}}]), "spec: it names secrets"),
            (
                spec(
                    containers=[
                        {"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "m"}}]},
                    ]
                ),
                "spec: it names configmaps",
            ),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path, content, says):
        with pytest.raises(errors.Refused) as refused:
            static_pods.read(tmp_path, content.encode(), "n")
        assert says in refused.value.message

    def test_no_content_is_quoted(self, tmp_path):
        with pytest.raises(errors.Refused) as refused:
            static_pods.read(tmp_path, b"a: [hunter2", "n")
        assert "hunter2" not in refused.value.message


class TestDirectory:
    def test_which_files_count(self, observed, tmp_path):
        for name in ("a.yaml", "b", ".hidden", "c.yaml~", "d.swp", "e.json"):
            (tmp_path / name).write_text(POD.replace("etcd}", f"p{name[0].strip('.') or 'x'}}}"))
        (tmp_path / "folder").mkdir()
        observed.look()
        assert [pod.path.name for pod in observed.pods] == ["a.yaml", "b", "e.json"]
        assert observed.problem() is None

    def test_a_bad_one_hides_no_other(self, observed, tmp_path):
        (tmp_path / "good.yaml").write_text(POD)
        (tmp_path / "bad.yaml").write_text("kind: Nothing")
        (tmp_path / "big.yaml").write_text("#" * (static_pods.MAX_BYTES + 1))
        with structlog.testing.capture_logs() as lines:
            observed.look()
            observed.look()
        assert [pod.name for pod in observed.pods] == ["etcd-worker-1"]
        assert set(observed.problems) == {"bad.yaml", "big.yaml"}
        assert observed.problem().startswith("bad.yaml: apiVersion: None is not supported")
        # Each is told once, not at every look.
        told = [line["manifest"] for line in lines if line["log_level"] == "warning"]
        assert sorted(told) == ["bad.yaml", "big.yaml"]

    def test_each_change_of_a_manifest_is_logged_once(self, observed, tmp_path):
        path = tmp_path / "a.yaml"
        path.write_text(POD)
        with structlog.testing.capture_logs() as lines:
            observed.look()
            path.write_text(POD.replace("etcd:3", "etcd:44"))
            observed.look()
            path.unlink()
            observed.look()
        assert [line["event"] for line in lines] == ["static Pod found", "static Pod changed", "static Pod gone"]
        assert observed.pods == ()

    def test_one_name_twice(self, observed, tmp_path):
        for name in ("a.yaml", "b.yaml"):
            (tmp_path / name).write_text(POD)
        observed.look()
        assert observed.pods == ()
        assert observed.problems["a.yaml"] == "default/etcd-worker-1 is also in b.yaml"
        (tmp_path / "b.yaml").unlink()
        observed.look()
        assert len(observed.pods) == 1
        assert observed.problems == {}

    def test_a_file_that_goes_meanwhile(self, observed, tmp_path, monkeypatch):
        (tmp_path / "a.yaml").write_text(POD)
        monkeypatch.setattr(observed, "_manifests", lambda _: [tmp_path / "a.yaml", tmp_path / "gone.yaml"])
        observed.look()
        assert len(observed.pods) == 1
        assert observed.problems == {}

    def test_a_path_that_cannot_be_looked_at(self, observed, tmp_path, monkeypatch):
        loop = tmp_path / "loop"
        loop.symlink_to(loop)
        monkeypatch.setattr(observed, "_manifests", lambda _: [loop])
        observed.look()
        assert "cannot read" in observed.problems["loop"]

    def test_a_link_is_followed(self, observed, tmp_path):
        """As ConfigMaps are mounted."""
        real = tmp_path / ".data"
        real.write_text(POD)
        (tmp_path / "a.yaml").symlink_to(real)
        observed.look()
        assert len(observed.pods) == 1

    def test_a_directory_that_is_away_keeps_what_was_there(self, tmp_path):
        directory = tmp_path / "manifests"
        observed = static_pods.StaticPods(directory, "n", MovableClock())
        observed.look()
        assert "no such file" in str(observed.problem())
        directory.mkdir()
        (directory / "a").write_text(POD)
        observed.look()
        assert observed.problem() is None
        directory.rename(tmp_path / "away")
        observed.look()
        assert len(observed.pods) == 1
        assert observed.problem() is not None

    def test_what_cannot_be_read_now_is_tried_again(self, observed, tmp_path, monkeypatch):
        (tmp_path / "a").write_text(POD)
        real = files.read

        def fail(path, limit):
            raise errors.Unavailable(f"cannot read {path}: input/output error", reason="FileSystemError")

        monkeypatch.setattr(files, "read", fail)
        observed.look()
        assert "input/output error" in observed.problem()
        monkeypatch.setattr(files, "read", real)
        observed.look()
        assert len(observed.pods) == 1


async def test_it_is_polled_on_the_clock(tmp_path):
    clock = MovableClock()
    observed = static_pods.StaticPods(tmp_path, "n", clock)
    task = asyncio.ensure_future(observed.run())
    await settle()
    assert not observed.pods
    (tmp_path / "a").write_text(POD)
    await clock.advance(static_pods.PERIOD)
    assert len(observed.pods) == 1
    task.cancel()


async def test_without_a_directory_it_ends():
    observed = static_pods.StaticPods(None, "n", MovableClock())
    await asyncio.wait_for(observed.run(), 1)
    observed.look()
    assert observed.problem() is None
