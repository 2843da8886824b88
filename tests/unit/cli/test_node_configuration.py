# SPDX-License-Identifier: Apache-2.0
"""`handfast node configuration status|restore|fetch`: what is printed, refused in which words, and with which exit code."""

from __future__ import annotations

import io
import json
import pathlib
import sys
import types

import pytest

from handfast.cli import main, output
from handfast.client import machine_configs
from handfast.node import configuration_state, root_files
from handfast.rules.machine_config import applying, pointer
from tests.unit.rules.machine_config import serving


class World:
    def __init__(self, root, capsys):
        self.root = root
        self.capsys = capsys
        self.answer = b""

    def machine(self):
        return configuration_state.Machine(root_files.Root(self.root))

    def apply(self, name, **files):
        rows = tuple(applying.PlannedFile(f"/etc/{key}", text.encode(), 0o644) for key, text in files.items())
        self.machine().apply(applying.Plan(rendering=name, files=rows, links={}))

    def run(self, *words, root=None):
        code = output.run(main.command, ["node", "configuration", *map(str, words), "--root", str(root or self.root)])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    async def fetch(self, target):
        assert target.headers == {"Authorization": "Bearer s3cret"}
        return self.answer

    def pointer(self, **changes):
        path = self.root.parent / "pointer.ign"
        document = pointer.document("https://192.0.2.1:22623/config/worker", b"ca", "s3cret")
        path.write_text(json.dumps({**document, **changes}))
        return path


@pytest.fixture
def world(tmp_path, capsys, monkeypatch):
    (tmp_path / "root").mkdir()
    made = World(tmp_path / "root", capsys)
    monkeypatch.setattr(machine_configs, "fetch", made.fetch)
    return made


class TestStatus:
    def test_a_machine_without_a_configuration_says_so_and_is_not_touched(self, world):
        code, out, _ = world.run("status")
        assert code == 0
        assert out == (
            f"root        {world.root}\n"
            "rendering   none\n"
            "wanted      not known\n"
            "state       not known: no agent has followed here\n"
            "paths       0\n"
            "drift       none\n"
            "restorable  nothing\n"
        )
        assert list(world.root.iterdir()) == []

    def test_a_machine_that_waits_to_be_sent_somewhere_says_so(self, world):
        world.machine().say(configuration_state.Report(reason="NotSent: nobody names one"))
        code, out, _ = world.run("status")
        assert code == 0
        assert "wanted      none yet\nstate       waiting\nreason      NotSent: nobody names one\n" in out

    def test_drift_and_what_would_be_restored_are_shown(self, world):
        world.apply("r1", motd="one")
        world.apply("r2", motd="two")
        world.machine().say(configuration_state.Report(desired="r2", state="Done"))
        code, out, _ = world.run("status")
        assert code == 0
        assert "rendering   r2\nwanted      r2\nstate       Done\n" in out
        assert "restorable  1 paths, back to r1" in out
        (world.root / "etc/motd").write_text("three")
        code, out, _ = world.run("status")
        assert (code, "drift       /etc/motd has other contents" in out) == (1, True)
        code, out, _ = world.run("status", "-o", "json")
        facts = json.loads(out)
        assert (code, facts["drift"]) == (1, [{"path": "/etc/motd", "words": "has other contents"}])
        assert facts["restorable"] == {"rendering": "r1", "paths": ["/etc/motd"]}

    def test_what_the_agent_could_not_apply_is_shown(self, world):
        world.apply("r1", **{f"f{number}": "x" for number in range(25)})
        world.machine().say(configuration_state.Report(desired="r2", state="Degraded", reason="CannotApply: fips"))
        for path in (world.root / "etc").iterdir():
            path.unlink()
        code, out, _ = world.run("status")
        assert code == 1
        assert "state       Degraded\nreason      CannotApply: fips\n" in out
        assert "drift       and 5 more" in out
        assert "restorable  25 paths, back to how it was before any configuration" in out

    def test_a_change_that_was_cut_short_is_shown(self, world):
        world.apply("r1", motd="one")
        journal = world.root / "var/lib/handfast/configuration/journal.json"
        journal.write_text('{"entries": {}, "record": {}}')
        code, out, _ = world.run("status")
        assert (code, "unfinished  a change is under way, or was cut short" in out) == (1, True)


class TestRestore:
    def test_what_was_taken_back_is_named_and_held_off(self, world):
        world.apply("r1", motd="one")
        world.apply("r2", **{"motd": "two", **{f"f{number}": "x" for number in range(25)}})
        code, out, err = world.run("restore")
        assert code == 0
        assert out.startswith("r2 was taken back; this machine is as it was with r1\n  /etc/f0\n")
        assert out.endswith("  and 6 more\n")
        assert "services were not restarted" in err
        assert "held off    r2" in world.run("status")[1]
        assert world.run("restore", "--undo")[1] == "r2 may be applied again\n"
        assert world.run("restore", "--undo")[1] == "no rendering was held off\n"
        assert json.loads(world.run("restore", "--undo", "-o", "json")[1]) == {"released": None}

    def test_the_first_configuration_can_be_taken_back_too(self, world):
        world.apply("r1", motd="one")
        code, out, _ = world.run("restore", "-o", "json")
        assert (code, json.loads(out)) == (0, {"takenBack": "r1", "rendering": None, "paths": ["/etc/motd"]})
        code, _, err = world.run("restore")
        assert (code, "there is nothing to restore" in err) == (1, True)

    def test_while_somebody_else_changes_the_machine_it_is_refused(self, world):
        world.apply("r1", motd="one")
        with world.machine().root.locked(configuration_state.DIRECTORY):
            code, _, err = world.run("restore")
        assert (code, "another process is changing the configuration" in err) == (3, True)


class TestFetch:
    def test_what_a_pointer_names_is_written(self, world):
        document = serving.rendered(files=[serving.file("/etc/motd", "hello")])
        world.answer = serving.answer(document)
        code, out, err = world.run("fetch", "--pointer", world.pointer())
        assert (code, err) == (0, "")
        assert out == f"{document['metadata']['name']} was written: 6 paths\n"
        assert (world.root / "etc/motd").read_text() == "hello"
        code, _, err = world.run("fetch", "--pointer", world.pointer())
        assert (code, "has a configuration already" in err) == (1, True)

    def test_the_standard_input_will_do(self, world, monkeypatch):
        world.answer = serving.answer(serving.rendered())
        stream = types.SimpleNamespace(buffer=io.BytesIO(world.pointer().read_bytes()))
        monkeypatch.setattr(sys, "stdin", stream)
        code, out, _ = world.run("fetch", "--pointer", "-", "-o", "json")
        assert (code, len(json.loads(out)["paths"])) == (0, 5)

    @pytest.mark.parametrize(
        ("files", "words"),
        [
            ([serving.file("/etc/../../x")], 'path is "/etc/../../x"'),
            ([serving.file("/big", b"x" * ((4 << 20) + 1))], "has 4,194,305 bytes: a file may have 4,194,304"),
            (
                [serving.file("/a", contents={"source": "data:,x", "verification": {"hash": f"sha256-{'0' * 64}"}})],
                "verification.hash",
            ),
            ([serving.file("/out/motd")], "/out/motd: a symbolic link in it leads out of the root"),
            ([serving.file("/dir")], "cannot write /dir: what lies there is neither a file nor a link"),
        ],
    )
    def test_a_configuration_that_cannot_be_written_is_refused_in_words(self, world, files, words):
        (world.root / "out").symlink_to("../..")
        (world.root / "dir").mkdir()
        world.answer = serving.changed(
            serving.answer(serving.rendered()), storage={"files": [{**row, "overwrite": True} for row in files]}
        )
        code, out, err = world.run("fetch", "--pointer", world.pointer())
        assert (code, out, words in err) == (1, "", True), err
        assert sorted(path.name for path in world.root.parent.iterdir()) == ["pointer.ign", "root"]

    @pytest.mark.parametrize(
        ("unit", "words"),
        [
            ({"name": "gone.service", "enabled": True}, 'the unit "gone.service" is to be enabled and has no contents'),
            ({"name": "../x.service", "mask": True}, 'is "../x.service"'),
            ({"name": "x.service"}, '"x.service" without contents'),
        ],
    )
    def test_a_unit_that_cannot_be_is_refused_in_words(self, world, unit, words):
        world.answer = serving.changed(serving.answer(serving.rendered()), systemd={"units": [unit]})
        code, _, err = world.run("fetch", "--pointer", world.pointer())
        assert (code, words in err) == (1, True), err

    @pytest.mark.parametrize(
        ("body", "words"),
        [(b"{", "is no JSON"), (b'{"ignition": {"version": "2.2.0"}}', 'ignition.version is "2.2.0"')],
    )
    def test_broken_ignition_is_refused_in_words(self, world, body, words):
        world.answer = body
        code, _, err = world.run("fetch", "--pointer", world.pointer())
        assert (code, words in err) == (1, True), err

    def test_a_pointer_that_is_none_is_refused_in_words(self, world):
        code, _, err = world.run("fetch", "--pointer", world.pointer(storage={"files": [{"path": "/a"}]}))
        assert (code, "has storage.files: only Ignition itself can do that" in err) == (1, True)
        code, _, err = world.run("fetch", "--pointer", world.root / "none")
        assert (code, "name another file with --pointer" in err) == (1, True)
        assert "s3cret" not in err


class TestRoots:
    @pytest.mark.parametrize("word", ["status", "restore"])
    def test_a_root_that_is_no_directory_is_refused(self, world, tmp_path, word):
        (tmp_path / "file").write_text("")
        for name, words in (("file", "a part of this path is a file"), ("none", "no such file or directory")):
            code, _, err = world.run(word, root=tmp_path / name)
            assert (code, words in err, "name another directory with --root" in err) == (1, True, True), err

    def test_a_root_that_cannot_be_written_is_refused(self, world, monkeypatch):
        world.answer = serving.answer(serving.rendered())
        path = world.pointer()

        def read_only(*_, **__):
            raise OSError(30, "Read-only file system")

        monkeypatch.setattr("os.mkdir", read_only)
        code, _, err = world.run("fetch", "--pointer", path)
        assert (code, "read-only file system" in err, "--root" in err) == (1, True, True), err
        assert pathlib.Path(world.root).exists()
