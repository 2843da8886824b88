# SPDX-License-Identifier: Apache-2.0
"""`handfast ca` on a directory that is not served: what is shown, what is refused, and what a step says."""

import datetime
import json

import pytest
import structlog

from handfast.cli import main, output
from handfast.datadir import layout, preparation
from handfast.datadir.rotation import trust_files
from handfast.rules import trust_rotation as rotation
from handfast.runtime import files
from handfast.runtime.addresses import Address

NOW = datetime.datetime.now(datetime.UTC)


def run(*arguments):
    return output.run(main.command, ["ca", *map(str, arguments)])


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    monkeypatch.delenv("HANDFAST_DIR", raising=False)
    yield
    structlog.reset_defaults()


@pytest.fixture
def place(tmp_path):
    made = layout.Layout.at(tmp_path / "d")
    preparation.prepare(made, server=Address("127.0.0.1", 6443), now=NOW)
    return made


class TestShow:
    def test_for_people(self, place, capsys):
        assert run("show", "--dir", place.root) == 0
        out, err = capsys.readouterr()
        assert out.splitlines()[0].split() == ["CA", "NAME", "UNTIL", "SIGNS", "UNEXPIRED", "CERTIFICATES"]
        assert out.splitlines()[1].split()[1:] == [
            "handfast-ca",
            out.split("handfast-ca")[1].split()[0],
            "yes",
            "unknown",
        ]
        assert err == "note: certificates are not counted: the control plane does not run\n"

    def test_for_machines(self, place, capsys):
        assert run("show", "--dir", place.root, "-o", "json") == 0
        found = json.loads(capsys.readouterr().out)
        (ca,) = found["certificateAuthorities"]
        assert (ca["fingerprint"], ca["signs"], ca["unexpiredCertificates"]) == (
            trust_files.signing_ca(place),
            True,
            None,
        )
        assert found["serviceAccountKeys"] == [{"keyID": trust_files.signing_key_id(place), "signs": True}]
        assert found["rotations"] == []

    @pytest.mark.parametrize("undoing, way", [(False, "under way; next is add"), (True, "being undone; next is add")])
    def test_a_rotation_is_told(self, place, capsys, undoing, way):
        for what in rotation.Target:
            state = rotation.State(target=what, old="old", new="new", undoing=undoing)
            trust_files.RotationDirectory.of(place, what).write(state)
        assert run("show", "--dir", place.root) == 0
        out = capsys.readouterr().out
        assert f"A rotation of the CA is {way}" in out
        assert f"A rotation of the service account key is {way}" in out
        assert run("show", "--dir", place.root, "-o", "json") == 0
        rotations = json.loads(capsys.readouterr().out)["rotations"]
        assert [(one["what"], one["undone"]) for one in rotations] == [
            ("ca", undoing),
            ("service-account-key", undoing),
        ]

    def test_one_that_is_served_and_does_not_answer(self, place, capsys):
        lock = files.lock_directory(place.root)
        assert run("show", "--dir", place.root) == 0
        lock.release()
        assert "certificates are not counted: https://127.0.0.1:6443" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["show", "rotate"])
def test_no_directory(word, tmp_path, capsys):
    assert run(word, "--dir", tmp_path / "none") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "reason: NoDataDirectory"
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("word", ["show", "rotate"])
def test_a_directory_of_others(word, place, capsys):
    place.root.chmod(0o777)
    assert run(word, "--dir", place.root) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "reason: DirectoryNotPrivate"
    place.root.chmod(0o700)


class TestRotate:
    def test_a_step_says_what_it_did_and_what_is_next(self, place, capsys):
        assert run("rotate", "--dir", place.root) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "done: add (make the new CA, and trust it beside the old one)"
        assert "  pki/ca.crt extended" in lines
        assert lines[-1] == "next: publish (publish both CAs, so that every client learns of the new one)"

    def test_there_is_nothing_to_undo(self, place, capsys):
        assert run("rotate", "--dir", place.root, "--undo") == 1
        assert capsys.readouterr().err.splitlines()[-1] == "reason: NoRotation"

    def test_what_waits_is_said_and_is_no_error(self, place, capsys):
        old = trust_files.signing_key_id(place)
        done = tuple((step, NOW) for step in (rotation.Step.ADD, rotation.Step.PUBLISH))
        state = rotation.State(target=rotation.Target.TOKEN_KEY, old=old, new="new", done=done)
        trust_files.RotationDirectory.of(place, rotation.Target.TOKEN_KEY).write(state)
        assert run("rotate", "--dir", place.root, "--service-account-key", "--all") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "next: switch (sign tokens with the other key)"
        assert lines[1].startswith("  waits: clients learn of it within two hours: until ")
        assert run("rotate", "--dir", place.root, "--service-account-key", "-o", "json") == 0
        (step,) = json.loads(capsys.readouterr().out)["steps"]
        assert (step["did"], step["next"], len(step["waitsFor"])) == (None, "switch", 1)

    @pytest.mark.slow
    def test_to_the_end(self, place, capsys):
        before = trust_files.signing_ca(place)
        assert run("rotate", "--dir", place.root, "--all", "--unsafe-skip-wait") == 0
        out = capsys.readouterr().out
        assert [line.split()[1] for line in out.splitlines() if line.startswith("done:")] == [
            *("add", "publish", "switch", "reissue", "retire")
        ]
        assert out.splitlines()[-1] == "the rotation is over"
        assert trust_files.signing_ca(place) != before
