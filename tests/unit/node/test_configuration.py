# SPDX-License-Identifier: Apache-2.0
"""What the follower of a configuration says and does at each turn. With real processes: tests/scenarios/test_node_configuration.py."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json

import prometheus_client
import pytest
import structlog
from prometheus_client import core

from handfast import errors
from handfast.client import connection as connections
from handfast.client import machine_configs
from handfast.node import configuration, configuration_metrics, configuration_state, root_files
from handfast.rules.machine_config import host_paths, names
from tests.unit.controllers.fake_api import FakeClient
from tests.unit.rules.machine_config import serving
from tests.world.clock import MovableClock, settle

KUBE = connections.Connection(server="https://[fd00::1]:6443", ca_pem=b"ca", cert_pem=b"c", key_pem=b"k")


class Fake(FakeClient):
    """… with merge patches of annotations."""

    async def patch(self, resource, name, patch, **_):
        found = self._find("patch", resource, name, "")
        annotations = found["metadata"].setdefault("annotations", {})
        annotations.update(patch["metadata"]["annotations"])
        return self._wrote("patch", resource, name, found)


class World:
    """A machine, its Node, and a server whose answer the test says."""

    def __init__(self, root, monkeypatch):
        self.root = root
        self.clock = MovableClock()
        self.client = Fake()
        self.client.put("nodes", "n1")
        self.machine = configuration_state.Machine(root_files.Root(root))
        self.machine.prepare()
        self.answer: bytes | errors.HandfastError = b""
        self.targets = []
        self.connection = KUBE
        monkeypatch.setattr(machine_configs, "fetch", self.fetch)
        self.followed = configuration.Configuration(
            self.client, "n1", self.machine, lambda: self.connection, self.clock, own=("/etc/kubernetes/kubelet.conf",)
        )

    async def fetch(self, target):
        self.targets.append(target)
        if isinstance(self.answer, errors.HandfastError):
            raise self.answer
        return self.answer

    def annotations(self):
        return self.client.objects["nodes", "", "n1"]["metadata"].get("annotations") or {}

    def serve(self, text="x", **more):
        document = serving.rendered(files=[serving.file("/etc/motd", text)], **more)
        self.answer = serving.answer(document)
        self.client.objects["nodes", "", "n1"]["metadata"].setdefault("annotations", {})[names.DESIRED] = document[
            "metadata"
        ]["name"]
        return document

    async def turn(self):
        """One look, with the Node as it is."""
        informer = self.followed._informer
        informer.begin()
        version = self.client.objects["nodes", "", "n1"]["metadata"]["resourceVersion"] + "-" + str(self.clock.now())
        meta = configuration.Meta(name="n1", annotations=dict(self.annotations()), resource_version=version)
        informer.put(configuration.Node(meta))
        informer.end()
        seconds = await self.followed._turn()
        said = {key.partition("/")[2]: text for key, text in self.annotations().items()}
        return seconds, said.get("state", ""), said.get("reason", ""), said.get("currentConfig", "")


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path, monkeypatch)
    yield made
    made.machine.root.close()


class TestTurns:
    async def test_a_machine_that_nothing_is_wanted_of_says_only_that_it_follows(self, world):
        assert await world.turn() == (configuration.PATIENCE, "", "", "")
        assert world.annotations() == {names.AGENT: names.AGENT_VERSION}
        assert world.followed.problem() is None
        assert world.targets == []

    async def test_a_control_plane_that_names_no_configuration_is_told_once_and_then_as_a_warning(self, world):
        with structlog.testing.capture_logs() as lines:
            for _ in range(3):
                await world.turn()
            await world.clock.advance(configuration.PATIENCE)
            for _ in range(3):
                assert (await world.turn())[0] == configuration.LOOK
        assert [(line["log_level"], line["reason"]) for line in lines] == [("info", "NotSent"), ("warning", "NotSent")]
        assert "of a release that renders and serves none" in lines[1]["why"]
        assert world.machine.report().reason.startswith("NotSent: the control plane names no configuration")
        assert world.followed.problem() is None
        # … until one is named.
        world.serve()
        await world.clock.advance(1)
        await world.turn()
        assert world.machine.report().reason == ""
        await world.turn()
        del world.annotations()[names.DESIRED]
        await world.clock.advance(1)
        with structlog.testing.capture_logs() as lines:
            await world.turn()
        assert [line["log_level"] for line in lines] == ["info"]

    async def test_without_a_node_there_is_nothing_to_do(self, world):
        await world.turn()
        world.client.calls.clear()
        world.followed._informer.begin()
        world.followed._informer.end()
        assert await world.followed._turn() == configuration.LOOK
        assert world.client.calls == []

    async def test_what_is_wanted_is_fetched_beside_the_api_server_with_the_credentials_of_this_instant(self, world):
        name = world.serve()["metadata"]["name"]
        assert await world.turn() == (configuration.LOOK, names.DONE, "", name)
        assert world.targets[0].url == "https://[fd00::1]:22623/config/worker"
        assert (world.targets[0].cert_pem, world.targets[0].ca_pem) == (b"c", b"ca")
        assert configuration.default_server("https://api.example:6443") == "https://api.example:22623"
        calls = len(world.client.calls)
        # A second look writes nothing and asks nobody.
        assert (await world.turn())[1] == names.DONE
        assert (len(world.client.calls), len(world.targets)) == (calls, 1)

    async def test_it_is_working_before_the_first_write(self, world, monkeypatch):
        seen = []
        plain = configuration_state.Machine.apply

        def apply(machine, plan):
            seen.append(world.annotations()[names.STATE])
            return plain(machine, plan)

        monkeypatch.setattr(configuration_state.Machine, "apply", apply)
        world.serve()
        await world.turn()
        assert seen == [names.WORKING]

    async def test_a_new_credential_alone_is_told_once_when_it_is_there(self, world):
        world.serve()
        await world.turn()
        document = world.serve(kubeconfig=b"newer")
        world.answer = serving.answer(document, b"newer")
        calls = len(world.client.calls)
        assert (await world.turn())[1::2] == (names.DONE, document["metadata"]["name"])
        assert (world.root / "etc/kubernetes/kubeconfig").read_bytes() == b"newer"
        assert len(world.client.calls) == calls + 1

    async def test_what_is_in_the_way_of_a_file_keeps_no_credential_away_and_is_told(self, world):
        first = world.serve()
        await world.turn()
        (world.root / "etc/motd").unlink()
        (world.root / "etc/motd").mkdir()
        second = world.serve(text="y", kubeconfig=b"another kubeconfig")
        world.answer = serving.answer(second, b"another kubeconfig")
        seconds, state, reason, current = await world.turn()
        assert (state, current) == (names.DEGRADED, first["metadata"]["name"])
        assert reason.startswith("NotAFile: cannot write /etc/motd")
        assert (world.root / host_paths.KUBECONFIG[1:]).read_bytes() == b"another kubeconfig"
        # It heals by itself.
        (world.root / "etc/motd").rmdir()
        await world.clock.advance(seconds + 1)
        assert (await world.turn())[1:] == (names.DONE, "", second["metadata"]["name"])

    async def test_what_comes_in_the_way_during_a_change_keeps_no_credential_away(self, world, monkeypatch):
        world.serve()
        await world.turn()
        plain = root_files.Root.put_file

        def swapped(root, path, *words, **more):
            if path == "/etc/motd":
                (world.root / "etc/motd").unlink()
                (world.root / "etc/motd").mkdir()
            plain(root, path, *words, **more)

        monkeypatch.setattr(root_files.Root, "put_file", swapped)
        second = world.serve(text="y", kubeconfig=b"another kubeconfig")
        world.answer = serving.answer(second, b"another kubeconfig")
        _, state, reason, _ = await world.turn()
        assert (state, reason.partition(":")[0]) == (names.DEGRADED, "NotAFile")
        assert (world.root / host_paths.KUBECONFIG[1:]).read_bytes() == b"another kubeconfig"
        assert not world.machine.unfinished()

    async def test_what_lies_where_the_configuration_was_is_no_reason_to_say_less(self, world):
        world.serve()
        await world.turn()
        (world.root / host_paths.CONTENT[1:]).unlink()
        (world.root / host_paths.CONTENT[1:]).symlink_to("/etc/passwd")
        document = world.serve(kubeconfig=b"newer")
        world.answer = serving.answer(document, b"newer")
        calls = len(world.client.calls)
        assert (await world.turn())[1::2] == (names.DONE, document["metadata"]["name"])
        assert len(world.client.calls) == calls + 2

    async def test_what_becomes_wanted_during_a_report_is_not_forgotten(self, world, monkeypatch):
        plain = world.client.patch

        async def patch(*arguments, **more):
            answer = copy.deepcopy(await plain(*arguments, **more))
            # Before the answer is here, the watch tells of a later write.
            world.serve()
            informer = world.followed._informer
            meta = configuration.Meta(name="n1", annotations=dict(world.annotations()), resource_version="later")
            informer.put(configuration.Node(meta))
            return answer

        monkeypatch.setattr(world.client, "patch", patch)
        await world.turn()
        monkeypatch.undo()
        monkeypatch.setattr(machine_configs, "fetch", world.fetch)
        await world.followed._turn()
        assert len(world.targets) == 1

    async def test_a_server_that_does_not_answer_is_given_its_time(self, world):
        name = world.serve()["metadata"]["name"]
        good = world.answer
        world.answer = errors.Unavailable("nobody answers", reason="Unreachable", hint="start it")
        seconds, state, _, _ = await world.turn()
        assert (state, seconds >= 2) == ("", True)
        assert world.followed.problem() == "waiting: Unreachable: nobody answers (start it)"
        # Not before its time.
        await world.turn()
        assert len(world.targets) == 1
        await world.clock.advance(configuration.PATIENCE + 200)
        _, state, reason, _ = await world.turn()
        assert (state, reason) == (names.DEGRADED, "Unreachable: nobody answers (start it)")
        world.answer = good
        await world.clock.advance(300)
        assert (await world.turn())[1::2] == (names.DONE, name)
        assert world.followed.problem() is None

    async def test_a_server_that_says_when_is_asked_then(self, world):
        world.serve()
        world.answer = machine_configs.NotReady("wait")
        world.answer.retry_after = 500.0
        assert (await world.turn())[0] == 500.0

    async def test_a_node_without_a_certificate_says_so(self, world):
        world.serve()
        world.connection = connections.Connection(server="https://x", token="t")
        assert (await world.turn())[1] == names.DEGRADED
        assert "NoCertificate" in world.followed.status.reason
        assert world.targets == []

    async def test_the_agents_own_files_are_no_configurations(self, world):
        document = serving.rendered(files=[serving.file("/etc/kubernetes/kubelet.conf")])
        world.answer = serving.answer(document)
        world.client.objects["nodes", "", "n1"]["metadata"]["annotations"] = {
            names.DESIRED: document["metadata"]["name"]
        }
        _, state, reason, _ = await world.turn()
        assert (state, reason.startswith("AgentsOwnFile: ")) == (names.DEGRADED, True)

    async def test_a_reason_is_at_most_a_kibibyte(self, world):
        world.serve()
        world.answer = errors.Refused("ä" * 5000, reason="Long")
        reason = (await world.turn())[2]
        assert len(reason.encode()) <= 1024
        assert reason.endswith("…")


class TestMachinesThatIgnitionMade:
    def leave(self, world, document, text="x"):
        """What Ignition leaves at the first boot, the kubeconfig readable by all, as OpenShift serves it."""
        for path, data in (
            (host_paths.NODE_ANNOTATIONS, json.dumps({names.CURRENT: document["metadata"]["name"]}).encode()),
            (host_paths.CONTENT, json.dumps(document).encode()),
            (host_paths.KUBECONFIG, serving.KUBECONFIG),
            ("/etc/motd", text.encode()),
        ):
            world.machine.root.put_file(path, data, mode=0o644, owner=world.machine._owner)

    async def test_its_rendering_is_the_current_one_before_any_server_is_asked(self, world):
        document = serving.rendered(files=[serving.file("/etc/motd", "x")])
        self.leave(world, document)
        assert await world.turn() == (configuration.PATIENCE, names.DONE, "", document["metadata"]["name"])
        assert world.targets == []

    async def test_the_kubeconfig_is_its_owners_alone_once_the_agent_follows(self, world):
        self.leave(world, world.serve("x"))
        assert (await world.turn())[1] == names.DONE
        assert world.machine.root.entry(host_paths.KUBECONFIG).mode == 0o600
        assert not world.machine.record().adopted
        await world.turn()
        assert len(world.targets) == 1

    async def test_drift_from_before_the_agent_is_not_overwritten(self, world):
        self.leave(world, world.serve("x"), text="changed by hand")
        seconds, state, reason, _ = await world.turn()
        assert (seconds, state) == (configuration.LOOK_AGAIN, names.DEGRADED)
        assert reason == "Drift: not as the configuration left it: /etc/motd has other contents"
        assert world.targets == []


class TestTheLoop:
    async def test_what_goes_wrong_is_told_and_ends_nothing(self, world, monkeypatch):
        turns: list[int] = []

        async def turn():
            turns.append(len(turns))
            if len(turns) == 1:
                raise errors.Unavailable("the disk is away", reason="FileSystemError")
            return 1000.0

        async def hold():
            await asyncio.Event().wait()

        monkeypatch.setattr(world.followed, "_turn", turn)
        monkeypatch.setattr(world.followed._reflector, "run", hold)
        world.followed._informer.begin()
        world.followed._informer.end()
        running = asyncio.ensure_future(world.followed.run())
        await settle(20)
        assert world.followed.problem() == "Degraded: FileSystemError: the disk is away"
        await world.clock.advance(10)
        await settle(20)
        assert len(turns) == 2
        # Whatever changes on the Node is looked at.
        world.followed._informer.put(configuration.Node(configuration.Meta(name="n1")))
        await settle(20)
        assert len(turns) == 3
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def test_what_nobody_foresaw_is_degraded_and_ends_nothing(self, world, monkeypatch):
        world.serve()
        put = world.machine.root.put_file

        def fails(path, *rest, **more):
            if path == "/etc/motd":
                raise OverflowError("uid is less than minimum")
            put(path, *rest, **more)

        monkeypatch.setattr(world.machine.root, "put_file", fails)
        _, state, reason, current = await world.turn()
        assert (state, current) == (names.DEGRADED, "")
        assert reason.startswith("InternalError: this agent failed with OverflowError")
        # Withdrawn, it heals: what was begun is rolled back.
        monkeypatch.setattr(world.machine.root, "put_file", put)
        name = world.serve("better")["metadata"]["name"]
        assert (await world.turn())[1:] == (names.DONE, "", name)
        assert not world.machine.unfinished()

    async def test_what_a_crash_cut_short_is_rolled_back_first(self, world, monkeypatch):
        world.serve("one")
        await world.turn()

        def die(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(configuration_state.Machine, "_put", die)
            plan = world.followed._planned(serving.answer(serving.rendered()), serving.rendered()["metadata"]["name"])
            with pytest.raises(KeyboardInterrupt):
                world.machine.apply(plan)
        assert world.machine.unfinished()
        assert (await world.turn())[1] == names.DONE
        assert not world.machine.unfinished()
        assert (world.root / "etc/motd").read_text() == "one"


async def test_the_metrics_have_the_state_and_the_drift(world):
    registry = core.CollectorRegistry()
    registry.register(configuration_metrics.ConfigurationMetrics(world.followed))
    world.serve()
    await world.turn()
    (world.root / "etc/motd").unlink()
    await world.turn()
    text = prometheus_client.generate_latest(registry).decode()
    assert 'handfast_node_configuration_state{state="Degraded"} 1.0' in text
    assert 'handfast_node_configuration_state{state="Done"} 0.0' in text
    assert "handfast_node_configuration_drifted_paths 1.0" in text
