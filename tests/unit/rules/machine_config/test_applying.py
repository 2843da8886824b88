# SPDX-License-Identifier: Apache-2.0
"""From an answer of the server to what is to lie on a machine: everything, or nothing and why."""

import json

import pytest

from handfast import errors
from handfast.rules.machine_config import applying, drift, host_paths, names
from tests.unit.rules.machine_config import serving

NOWHERE = applying.Machine()


def plan(document, machine=NOWHERE, wanted="", body=None, **more):
    config = applying.parse(serving.answer(document, **more) if body is None else body)
    return applying.plan(config, wanted or document["metadata"]["name"], machine)


def refusal(document, **more):
    with pytest.raises(errors.HandfastError) as caught:
        plan(document, **more)
    return caught.value


class TestWhatIsPlanned:
    def test_files_units_and_links_are_planned_with_their_modes(self):
        document = serving.rendered(
            files=[
                serving.file("/etc/motd", "hello"),
                serving.file("/etc/x", "x", mode=0o600, user={"name": "core"}, group={"id": 7}),
            ],
            units=[{"name": "a.service", "contents": "[Install]\nWantedBy=multi-user.target\n", "enabled": True}],
        )
        planned = plan(document)
        files = {file.path: file for file in planned.files}
        assert planned.rendering == document["metadata"]["name"]
        assert (files["/etc/motd"].content, files["/etc/motd"].mode) == (b"hello", 0o644)
        assert (files["/etc/x"].mode, files["/etc/x"].user, files["/etc/x"].group) == (0o600, "core", 7)
        assert files["/etc/systemd/system/a.service"].content == b"[Install]\nWantedBy=multi-user.target\n"
        assert planned.links == {
            "/etc/systemd/system/multi-user.target.wants/a.service": "/etc/systemd/system/a.service"
        }
        assert {*host_paths.ADDED} - {host_paths.HOSTNAME} <= {*files}
        assert "credential" not in repr(planned)

    def test_the_kubeconfig_is_its_owners_alone_wherever_it_lies(self):
        document = serving.rendered(files=[serving.file("/var/copy", serving.KUBECONFIG)])
        modes = {file.path: file.mode for file in plan(document).files}
        assert modes["/var/copy"] == modes[host_paths.KUBECONFIG] == 0o600

    def test_the_files_of_the_server_belong_to_nobody_else(self):
        document = serving.rendered()
        body = json.loads(serving.answer(document))
        for file in body["storage"]["files"]:
            file |= {"mode": 0o777, "user": {"id": 1000}, "group": {"id": 1000}}
        files = plan(document, body=json.dumps(body).encode()).files
        assert {*host_paths.ADDED} - {host_paths.HOSTNAME} == {file.path for file in files}
        assert {(file.user, file.group) for file in files} == {(None, None)}
        modes = {file.path: file.mode for file in files}
        assert modes.pop(host_paths.KUBECONFIG) == modes.pop(host_paths.CONTENT) == 0o600
        assert {*modes.values()} == {0o644}

    def test_what_is_its_owners_alone_lies_nowhere_else_for_all_to_read(self):
        document = serving.rendered(files=[serving.file("/etc/pull-secret", "hush-hush", mode=0o600)])
        holds = [file for file in plan(document).files if b"hush-hush" in file.content]
        assert {file.path for file in holds} == {"/etc/pull-secret", host_paths.CONTENT}
        assert {file.mode for file in holds} == {0o600}

    def test_a_file_without_a_source_is_empty_and_has_the_usual_mode(self):
        document = serving.rendered(files=[{"path": "/etc/empty"}])
        document["spec"]["config"]["storage"]["files"][0].pop("mode", None)
        document["spec"]["config"]["storage"]["files"][0].pop("overwrite", None)
        file = next(file for file in plan(serving.sealed(document)).files if file.path == "/etc/empty")
        assert (file.content, file.mode, file.overwrite) == (b"", 0o644, False)

    def test_a_file_knows_whether_it_lies_there_already(self):
        file = applying.PlannedFile("/a", b"", 0o644)
        digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        assert file.same_as(drift.Entry(drift.FILE, digest))
        assert not file.same_as(drift.NOTHING)

    def test_a_disabled_units_links_are_to_be_gone_unless_somebody_else_makes_them(self):
        install = "[Install]\nWantedBy=a.target b.target\n"
        units = [
            {"name": "off.service", "contents": install, "enabled": False},
            {"name": "on.service", "contents": "[Install]\nAlias=off.service.alias.service\n", "enabled": True},
        ]
        planned = plan(serving.rendered(units=units))
        base = "/etc/systemd/system"
        assert planned.absent == (f"{base}/a.target.wants/off.service", f"{base}/b.target.wants/off.service")
        assert planned.links == {f"{base}/off.service.alias.service": f"{base}/on.service"}

    def test_the_pool_is_in_the_name_of_a_rendering(self):
        assert applying.pool_of(f"rendered-infra-east-{'0a' * 16}") == "infra-east"
        for wrong in ("", "rendered-worker", f"rendered--{'0' * 31}", "../x"):
            with pytest.raises(errors.Refused, match="is no name of a rendering"):
                applying.pool_of(wrong)


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        "body", [b"", b"{", b"[" * 100_000, b"\xff", b'["\xed\xa0\x80"]', rb'{"a":"\ud800"}', rb'{"\udc80":1}']
    )
    def test_what_is_no_json_is_refused(self, body):
        with pytest.raises(errors.Refused, match="the served configuration is no JSON"):
            applying.parse(body)

    def test_broken_ignition_is_refused_with_the_field(self):
        with pytest.raises(errors.Refused, match=r'ignition.version is "9.9.9"'):
            applying.parse(b'{"ignition": {"version": "9.9.9"}}')

    def test_a_path_that_escapes_is_refused_with_the_path(self):
        body = serving.changed(serving.answer(serving.rendered()), storage={"files": [serving.file("/etc/../../x")]})
        with pytest.raises(errors.Refused, match=r'path is "/etc/\.\./\.\./x"'):
            applying.parse(body)

    def test_a_file_larger_than_its_limit_is_refused(self):
        big = serving.file("/big", b"x" * ((4 << 20) + 1))
        body = serving.changed(serving.answer(serving.rendered()), storage={"files": [big]})
        with pytest.raises(errors.Refused, match="a file may have 4,194,304"):
            applying.parse(body)

    def test_files_have_a_limit_together(self, monkeypatch):
        monkeypatch.setattr(applying, "TOTAL_LIMIT", 1000)
        error = refusal(serving.rendered(files=[serving.file("/a", "x" * 999)]))
        assert (error.reason, "more than 1,000 bytes together" in error.message) == ("TooLarge", True)

    def test_another_rendering_is_not_taken_for_the_one_that_was_wanted(self):
        document = serving.rendered()
        error = refusal(document, wanted="rendered-worker-other")
        assert isinstance(error, errors.Unavailable)
        assert error.reason == "OtherRendering"
        assert document["metadata"]["name"] in error.message
        assert "rendered-worker-other is wanted" in error.message

    def test_an_answer_that_does_not_say_what_it_is_is_refused(self):
        body = b'{"ignition": {"version": "3.5.0"}}'
        error = refusal(serving.rendered(), body=body)
        assert error.message.startswith("the machine-config server serves no rendering, and ")

    def test_a_server_cannot_add_to_a_rendering_or_change_it(self):
        document = serving.rendered(files=[serving.file("/etc/motd", "hello")])
        honest = json.loads(serving.answer(document))
        more = {**honest, "systemd": {"units": [{"name": "evil.service", "contents": "[Service]\n"}]}}
        files = [
            serving.file("/etc/motd", "evil") if row["path"] == "/etc/motd" else row
            for row in honest["storage"]["files"]
        ]
        for body in (
            more,
            {**honest, "storage": {"files": files}},
            {**honest, "storage": {"files": honest["storage"]["files"][1:]}},
        ):
            error = refusal(document, body=json.dumps(body).encode())
            assert (error.reason, "serves other files or units than rendered-worker-" in error.message) == (
                "OtherContents",
                True,
            )
        # Nor by changing the MachineConfig beside it: its name is the digest of what it has.
        lying = serving.rendered(files=[serving.file("/etc/motd", "evil")])
        lying["metadata"]["name"] = document["metadata"]["name"]
        error = refusal(document, body=serving.answer(lying))
        assert error.reason == "NotARendering"
        assert error.message.endswith("its name is a digest of what it had (rendered by test)")
        # Nor by another credential beside another digest.
        lying = serving.rendered(files=[serving.file("/etc/motd", "hello")], kubeconfig=b"evil")
        lying["metadata"]["name"] = document["metadata"]["name"]
        assert refusal(document, body=serving.answer(lying, b"evil")).reason == "NotARendering"

    def test_an_answer_whose_two_files_differ_is_refused(self):
        body = json.loads(serving.answer(serving.rendered()))
        body["storage"]["files"] = [row for row in body["storage"]["files"] if row["path"] != host_paths.ENCAPSULATED]
        error = refusal(serving.rendered(), body=json.dumps(body).encode())
        assert "serves no rendering and rendered-worker-" in error.message

    def test_a_kubeconfig_of_another_digest_is_refused(self):
        error = refusal(serving.rendered(), kubeconfig=b"another")
        assert error.reason == "OtherCredential"
        assert "the bootstrap kubeconfig /etc/kubernetes/kubeconfig has the digest" in error.message
        assert "another" not in error.message

    def test_a_rendering_without_a_kubeconfig_or_without_its_digest_is_refused(self):
        document = serving.rendered()
        body = json.loads(serving.answer(document))
        body["storage"]["files"] = [row for row in body["storage"]["files"] if row["path"] != host_paths.KUBECONFIG]
        assert "the digest of no file" in refusal(document, body=json.dumps(body).encode()).message
        document["metadata"]["annotations"].pop(names.CREDENTIAL)
        assert f"it has no {names.CREDENTIAL}" in refusal(document).message

    def test_at_the_first_boot_a_rendering_of_another_server_will_do(self):
        document = serving.rendered()
        document["metadata"]["annotations"].pop(names.CREDENTIAL)
        planned = applying.plan(applying.parse(serving.answer(document)), None, NOWHERE)
        assert planned.rendering == document["metadata"]["name"]

    @pytest.mark.parametrize(
        ("spec", "words", "state"),
        [
            ({"osImageURL": "quay.example/os@sha256:1"}, "osImageURL", names.DEGRADED),
            ({"kernelArguments": ["quiet"]}, "kernelArguments", names.DEGRADED),
            ({"extensions": ["usbguard"]}, "extensions", names.DEGRADED),
            ({"kernelType": "realtime"}, "kernelType", names.DEGRADED),
            ({"fips": True}, "fips", names.UNRECONCILABLE),
            ({"config": {"passwd": {"users": [{"name": "core"}]}}}, "passwd.users", names.UNRECONCILABLE),
            (
                {"config": {"storage": {"directories": [{"path": "/a"}]}}},
                "storage.directories",
                names.UNRECONCILABLE,
            ),
            (
                {"config": {"storage": {"links": [{"path": "/a", "target": "/b"}]}}},
                "storage.links",
                names.UNRECONCILABLE,
            ),
            (
                {"config": {"storage": {"disks": [{"device": "/dev/sda"}]}}},
                "storage.disks",
                names.UNRECONCILABLE,
            ),
            (
                {"config": {"storage": {"files": [{"path": "/a", "append": [{"source": "data:,x"}]}]}}},
                "append of /a",
                names.UNRECONCILABLE,
            ),
            (
                {"files": [{"path": "/a", "overwrite": True, "contents": {"source": "https://x.example/y?s"}}]},
                "/a from https",
                names.DEGRADED,
            ),
        ],
    )
    def test_what_cannot_be_applied_is_named(self, spec, words, state):
        document = serving.rendered()
        if "files" in spec:
            spec = {"config": {"storage": {"files": spec.pop("files")}}}
        document["spec"] |= {**spec, "config": {**document["spec"]["config"], **spec.get("config", {})}}
        error = refusal(serving.sealed(document))
        assert isinstance(error, applying.CannotApply)
        assert error.message == f"this agent cannot apply {words}; nothing of this rendering was written"
        assert (error.state, error.reason) == (state, "CannotApply")

    def test_many_things_that_cannot_be_applied_are_counted(self):
        source = {"source": "http://x.example/"}
        files = [{"path": f"/{number}", "overwrite": True, "contents": source} for number in range(9)]
        document = serving.rendered()
        document["spec"]["config"]["storage"] = {"files": files}
        assert "/5 from http and 3 more" in refusal(serving.sealed(document)).message

    def test_values_that_ask_for_nothing_are_no_hindrance(self):
        nothing = {"osImageURL": "", "kernelArguments": [], "extensions": [], "fips": False, "kernelType": "default"}
        document = serving.rendered()
        document["spec"] |= nothing
        assert plan(serving.sealed(document)).rendering

    def test_what_ignition_did_at_the_first_boot_need_not_be_done_again(self):
        users = {"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]}}
        document = serving.rendered(config=users)
        left = applying.adopted(
            json.dumps({names.CURRENT: document["metadata"]["name"]}).encode(), json.dumps(document).encode()
        )
        assert left is not None
        machine = applying.Machine(sections=left.sections)
        assert plan(document, machine).sections == left.sections
        users["passwd"]["users"][0]["sshAuthorizedKeys"] = ["ssh-ed25519 B"]
        assert refusal(serving.rendered(config=users), machine=machine).state == names.UNRECONCILABLE

    def test_how_to_fetch_is_nothing_to_apply(self):
        document = serving.rendered()
        document["spec"]["config"]["ignition"]["timeouts"] = {"httpTotal": 5}
        assert plan(serving.sealed(document)).sections == {}

    def test_a_unit_without_contents_is_refused_by_name(self):
        error = refusal(serving.rendered(units=[{"name": "gone.service", "enabled": True}]))
        assert error.reason == "UnitWithoutContents"
        assert error.message == (
            'the unit "gone.service" is to be enabled and has no contents, and this machine brings no unit of that name'
        )

    def test_a_unit_cannot_be_enabled_outside_the_directory_of_units(self):
        units = [{"name": "a.service", "contents": "[Install]\nWantedBy=../../x\n", "enabled": True}]
        assert "WantedBy=../../x in [Install] is no name of a unit" in refusal(serving.rendered(units=units)).message

    @pytest.mark.parametrize(
        ("path", "own"),
        [
            ("/var/lib/kubelet/pki/kubelet-client-current.pem", "/var/lib/kubelet/pki"),
            ("/etc/kubernetes/kubelet.conf", "/etc/kubernetes/kubelet.conf"),
        ],
    )
    def test_the_agents_own_files_are_not_written(self, path, own):
        error = refusal(serving.rendered(files=[serving.file(path)]), machine=applying.Machine(own=(own,)))
        assert (error.reason, own in error.message) == ("AgentsOwnFile", True)

    def test_paths_that_collide_are_refused(self):
        twice = serving.rendered(
            files=[serving.file("/etc/systemd/system/a.service")], units=[{"name": "a.service", "mask": True}]
        )
        # The merge refuses both before; a server need not have merged.
        assert refusal(twice).message == "/etc/systemd/system/a.service is there twice: as a file and by a unit"

    def test_a_path_below_a_file_is_refused(self):
        document = serving.rendered(files=[serving.file("/a/b")])
        storage = document["spec"]["config"]["storage"]
        storage["files"] = [*storage["files"], serving.file("/a")]
        with pytest.raises(errors.Refused, match="/a/b lies below /a, which is a file or a link in the same conf"):
            applying.plan(applying.parse(serving.answer(document)), None, NOWHERE)


class TestTheCredentialAlone:
    def test_the_same_configuration_with_another_credential_is_told_apart(self):
        document = serving.rendered(files=[serving.file("/etc/motd", "hello")])
        other = serving.rendered(files=[serving.file("/etc/motd", "another")])
        older = serving.rendered(files=[serving.file("/etc/motd", "hello")], kubeconfig=b"older")
        planned = plan(document)
        assert older["metadata"]["name"] != planned.rendering
        assert applying.credential_alone(json.dumps(older).encode(), planned)
        for before in (json.dumps(other).encode(), b"no JSON", b"{}", None):
            assert not applying.credential_alone(before, planned)

    def test_a_plan_that_does_not_say_what_it_is_is_more_than_a_credential(self):
        document = serving.rendered()
        nothing = applying.Plan(rendering="r", files=(), links={})
        assert not applying.credential_alone(json.dumps(document).encode(), nothing)
        assert not applying.credential_alone(None, nothing)


class TestWhatIgnitionLeft:
    def test_the_two_files_have_to_say_the_same(self):
        document = serving.rendered(files=[serving.file("/etc/motd")])
        annotations = json.dumps({names.CURRENT: document["metadata"]["name"]}).encode()
        left = applying.adopted(annotations, json.dumps(document).encode())
        assert left is not None
        assert (left.rendering, [file.path for file in left.files]) == (document["metadata"]["name"], ["/etc/motd"])
        other = json.dumps({**document, "metadata": {"name": "other"}}).encode()
        broken = json.dumps({**document, "spec": {"config": {"ignition": {"version": "1"}}}}).encode()
        for pair in ((None, None), (annotations, None), (annotations, other), (b"[]", b"{"), (annotations, broken)):
            assert applying.adopted(*pair) is None
