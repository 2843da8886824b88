# SPDX-License-Identifier: Apache-2.0
"""`handfast join`: what may be combined, what is read from where, what is printed and written, and with which code.

Up to the bootstrap kubeconfig; what follows is in test_join_node.py.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from typing import ClassVar

import pytest
import structlog
import yaml

from handfast import errors
from handfast.assembly import node_config
from handfast.bootstrap import cluster_info, diagnosis, discovery, kubeconfig
from handfast.cli import join_cluster, join_flags, main, output
from handfast.client import cluster_cache
from handfast.client import discovery as searching
from handfast.node import units
from handfast.pki import pins
from tests.unit.pki import making
from tests.world.tls_cluster import OTHER, TOKEN

CA = making.ca("one")
PIN = str(pins.of_certificate(CA.der))
INFO = cluster_info.ClusterInfo(("https://a:6443", "https://b:6443"), CA.pem, "uid")
PINNED = ("--discovery-token-ca-cert-hash", PIN)
DEFAULT = "default.conf"


class FakeDiscovery:
    """Finds the cluster at once, and remembers how it was asked to."""

    made: ClassVar[list[FakeDiscovery]] = []
    error: errors.HandfastError | None = None
    accepted = True
    notes: tuple[str, ...] = ()

    def __init__(self, clock, *, timeout, report):
        self.timeout = timeout
        self.report = report
        self.asked = {}
        FakeDiscovery.made.append(self)

    def cluster(self):
        if self.error is not None:
            raise self.error
        return searching.Cluster(info=INFO, server="https://a:6443", notes=self.notes)

    async def by_token(self, typed, method):
        self.report("waiting: for nothing")
        self.asked |= {"typed": [str(one) for one in typed], "method": method}
        return self.cluster()

    async def by_document(self, text, typed):
        self.asked |= {"text": text, "typed": [str(one) for one in typed]}
        return self.cluster()

    async def fetch_document(self, url, ca):
        self.asked |= {"url": url, "ca": ca}
        return "from the URL"

    async def login(self, cluster, token, *, signs):
        self.asked |= {"login": token, "signs": signs}
        return self.accepted


@pytest.fixture(autouse=True)
def _world(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HANDFAST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(searching, "Discovery", FakeDiscovery)
    monkeypatch.setattr(join_flags, "DEFAULT_FILE", str(tmp_path / "etc" / DEFAULT))
    # Whatever a test forgets to say, it does not reach the machine's own files.
    monkeypatch.setattr(node_config, "KUBECONFIG", str(tmp_path / "etc" / "kubelet.conf"))
    monkeypatch.setattr(node_config, "CERT_DIR", str(tmp_path / "pki"))
    monkeypatch.setattr(units, "DIRECTORY", tmp_path / "systemd")
    monkeypatch.setattr(FakeDiscovery, "made", [])
    yield
    structlog.reset_defaults()


def run(*arguments):
    # Through the root, as people do: click keeps what it finds out of a command the first time.
    return output.run(main.command, ["join", "--discovery-only", *(str(word) for word in arguments)])


def asked():
    assert len(FakeDiscovery.made) == 1
    return FakeDiscovery.made[0].asked


def stdin(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


class TestResult:
    def test_the_text_says_what_was_found_and_what_was_written(self, capsys, tmp_path):
        assert run("a", "b:1", "--token", TOKEN.text, *PINNED) == 0
        out, err = capsys.readouterr()
        path = tmp_path / "etc" / DEFAULT
        assert out == (
            "found the cluster, and it is the right one\n\n"
            "  server      https://a:6443\n"
            "  servers     https://a:6443, https://b:6443\n"
            f"  CA          {PIN}\n"
            "  cluster id  uid\n"
            "  token       abcdef, accepted for logging in\n\n"
            f"wrote {path}, mode 0600\n"
            "This machine has not joined yet: no certificate was requested. A kubelet that is started with\n"
            "--bootstrap-kubeconfig and that file requests its own.\n"
        )
        assert err == "note: waiting: for nothing\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        method = discovery.ByToken(TOKEN, (pins.parse(PIN),))
        assert asked() == {"typed": ["a:6443", "b:1"], "method": method, "login": TOKEN, "signs": True}
        assert FakeDiscovery.made[0].timeout == 300

    def test_the_kubeconfig(self, tmp_path):
        assert run("a", "--token", TOKEN.text, *PINNED, "--bootstrap-kubeconfig", "k") == 0
        found = kubeconfig.parse((tmp_path / "k").read_text())
        assert found.user == kubeconfig.User(name="tls-bootstrap-token-user", token=TOKEN.text)
        assert (found.cluster.server, found.cluster.certificate_authority_data) == ("https://a:6443", CA.pem)
        assert cluster_cache.load(tmp_path / "k").info == INFO
        assert not (tmp_path / "etc").exists()

    def test_a_directory_that_is_not_there_is_made(self, tmp_path):
        path = tmp_path / "a" / "b" / "k"
        assert run("a", "--token", TOKEN.text, *PINNED, "--bootstrap-kubeconfig", path) == 0
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_dry_run_writes_nothing(self, capsys, tmp_path):
        assert run("a", "--token", TOKEN.text, *PINNED, "--dry-run") == 0
        assert f"would write {tmp_path / 'etc' / DEFAULT}\n" in capsys.readouterr().out
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("more", [(), ("--dry-run", "--bootstrap-kubeconfig", "k")])
    def test_printed_and_not_written(self, capsys, tmp_path, more):
        assert run("a", "--token", TOKEN.text, *PINNED, "--print-kubeconfig", *more) == 0
        assert kubeconfig.parse(capsys.readouterr().out).user == kubeconfig.User(
            name=join_cluster.USER, token=TOKEN.text
        )
        assert list(tmp_path.iterdir()) == []

    def test_printed_and_written(self, capsys, tmp_path):
        assert run("a", "--token", TOKEN.text, *PINNED, "--print-kubeconfig", "--bootstrap-kubeconfig", "k") == 0
        assert capsys.readouterr().out == (tmp_path / "k").read_text()

    def test_for_machines(self, capsys, tmp_path):
        assert run("a", "--token", TOKEN.text, *PINNED, "--bootstrap-kubeconfig", "k", "-o", "json") == 0
        assert json.loads(capsys.readouterr().out) == {
            "server": "https://a:6443",
            "servers": ["https://a:6443", "https://b:6443"],
            "clusterID": "uid",
            "caPins": [PIN],
            "tokenID": "abcdef",
            "bootstrapKubeconfig": "k",
            "joined": False,
            "tokenAccepted": True,
        }
        assert run("a", "--token", TOKEN.text, *PINNED, "--dry-run", "-o", "yaml") == 0
        assert yaml.safe_load(capsys.readouterr().out)["bootstrapKubeconfig"] is None

    def test_what_is_not_known_is_not_claimed(self, capsys, monkeypatch):
        monkeypatch.setattr(FakeDiscovery, "accepted", False)
        monkeypatch.setattr(FakeDiscovery, "notes", ("one thing",))
        assert run("a", "--token", TOKEN.text, *PINNED) == 0
        out, err = capsys.readouterr()
        assert "abcdef, not checked for logging in" in out
        assert "note: one thing\n" in err
        assert "did not say whether it lets the token abcdef log in" in err

    def test_without_a_pin_there_is_a_note(self, capsys):
        assert run("a", "--token", TOKEN.text, "--discovery-token-unsafe-skip-ca-verification") == 0
        assert "note: the CA is not pinned" in capsys.readouterr().err
        assert asked()["method"].pins == ()

    def test_no_output_shows_the_secret(self, capsys):
        assert run("a", "--token", TOKEN.text, *PINNED, "-o", "json") == 0
        out, err = capsys.readouterr()
        assert TOKEN.id in out
        assert TOKEN.secret not in out + err


class TestTokens:
    def test_two_tokens(self):
        words = ("--discovery-token", TOKEN.text, "--tls-bootstrap-token", OTHER.text)
        assert run("a", *words, *PINNED) == 0
        assert (asked()["method"].token, asked()["login"], asked()["signs"]) == (TOKEN, OTHER, False)

    @pytest.mark.parametrize("flag", ["--token", "--discovery-token"])
    def test_in_a_file(self, tmp_path, flag):
        (tmp_path / "t").write_text(f" {TOKEN.text}\n")
        assert run("a", f"{flag}-file", "t", *PINNED) == 0
        assert (asked()["method"].token, asked()["login"]) == (TOKEN, TOKEN)

    def test_the_other_one_in_a_file(self, tmp_path):
        (tmp_path / "t").write_text(OTHER.text)
        assert run("a", "--token", TOKEN.text, "--tls-bootstrap-token-file", "t", *PINNED) == 0
        assert asked()["login"] == OTHER

    @pytest.mark.parametrize("flag", ["--token", "--token-file"])
    def test_on_stdin(self, monkeypatch, flag):
        stdin(monkeypatch, f"{TOKEN.text}\n".encode())
        assert run("a", flag, "-", *PINNED) == 0
        assert asked()["method"].token == TOKEN


class TestDocuments:
    WORDS = ("--tls-bootstrap-token", TOKEN.text, "--discovery-file")

    def test_a_file(self, tmp_path):
        (tmp_path / "f").write_text("text")
        assert run(*self.WORDS, "f") == 0
        assert asked() == {"text": "text", "typed": [], "login": TOKEN, "signs": False}

    @pytest.mark.parametrize("words", [(), ("--bootstrap-kubeconfig", "k")])
    def test_a_bootstrap_kubeconfig_is_the_second_credential(self, tmp_path, capsys, words):
        """The proposal: this command line may have a TLS bootstrap token, or a config file, also."""
        path = tmp_path / "k" if words else tmp_path / "etc" / DEFAULT
        path.parent.mkdir(exist_ok=True)
        cluster = kubeconfig.Cluster(name="c", server="https://old:6443")
        user = kubeconfig.User(name="u", token=TOKEN.text)
        path.write_text(kubeconfig.render(kubeconfig.Kubeconfig(context="c", cluster=cluster, user=user)))
        (tmp_path / "f").write_text("text")
        assert run("--discovery-file", "f", *words) == 0
        assert asked() == {"text": "text", "typed": [], "login": TOKEN, "signs": False}
        written = kubeconfig.parse(path.read_text())
        assert written.cluster.server == "https://a:6443"
        assert written.user == kubeconfig.User(name=join_cluster.USER, token=TOKEN.text)
        out, err = capsys.readouterr()
        assert f"note: logging in with the token of {'k' if words else path}\n" in err
        assert TOKEN.secret not in out + err

    @pytest.mark.parametrize("token", ["", "another-kind-of-token"])
    def test_a_bootstrap_kubeconfig_with_another_credential(self, tmp_path, capsys, token):
        cluster = kubeconfig.Cluster(name="c", server="https://old:6443")
        user = kubeconfig.User(
            name="u", token=token, client_certificate="" if token else "c", client_key="" if token else "k"
        )
        text = kubeconfig.render(kubeconfig.Kubeconfig(context="c", cluster=cluster, user=user))
        (tmp_path / "k").write_text(text)
        (tmp_path / "f").write_text("text")
        assert run("--discovery-file", "f", "--bootstrap-kubeconfig", "k") == 1
        err = capsys.readouterr().err
        assert err.startswith("error: the bootstrap kubeconfig k has no bootstrap token to log in with\n")
        assert err.endswith("reason: NoBootstrapToken\n")
        assert (tmp_path / "k").read_text() == text

    def test_a_document_on_stdin_is_read(self, monkeypatch):
        stdin(monkeypatch, b"text")
        assert run("a", *self.WORDS, "-") == 0
        assert (asked()["text"], asked()["typed"]) == ("text", ["a:6443"])

    @pytest.mark.parametrize("hint", [None, "its own"])
    def test_what_is_wrong_is_told_with_the_file(self, tmp_path, monkeypatch, capsys, hint):
        (tmp_path / "f").write_text("text")
        monkeypatch.setattr(FakeDiscovery, "error", errors.Refused("odd", reason="BadKubeconfig", hint=hint))
        assert run(*self.WORDS, "f") == 1
        err = capsys.readouterr().err
        assert err.startswith(f"error: --discovery-file f: odd\nhint: {hint or 'it is a kubeconfig with one cluster'}")

    def test_other_errors_are_themselves(self, tmp_path, monkeypatch, capsys):
        (tmp_path / "f").write_text("text")
        monkeypatch.setattr(FakeDiscovery, "error", errors.Refused("odd", reason="NotPinned"))
        assert run(*self.WORDS, "f") == 1
        assert capsys.readouterr().err == "error: odd\nreason: NotPinned\n"

    def test_a_url(self):
        assert run(*self.WORDS, "https://url/f") == 0
        assert (asked()["url"], asked()["ca"], asked()["text"]) == ("https://url/f", None, "from the URL")

    def test_a_url_with_a_ca(self, tmp_path):
        (tmp_path / "ca").write_bytes(CA.pem)
        assert run(*self.WORDS, "https://url/f", "--discovery-ca-file", "ca") == 0
        assert asked()["ca"] == CA.pem

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            (("none",), "FileNotFound"),
            (("https://url/f", "--discovery-ca-file", "none"), "FileNotFound"),
            (("large",), "FileTooLarge"),
            (("binary",), "BadClusterInfo"),
        ],
    )
    def test_a_document_that_cannot_be_read_is_refused(self, capsys, tmp_path, words, reason):
        (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
        (tmp_path / "binary").write_bytes(b"\xff")
        assert run(*self.WORDS, *words) == 1
        err = capsys.readouterr().err
        assert err.endswith(f"reason: {reason}\n")
        assert ("hint: name another file" in err) == (reason == "FileNotFound")


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "reason", "hint"),
        [
            ((), "NoDiscoveryMethod", "--discovery-file"),
            (("a",), "NoDiscoveryMethod", "--token"),
            (("a", "--token", TOKEN.text), "NoPin", "--discovery-token-ca-cert-hash"),
            (("--token", TOKEN.text, *PINNED), "NoEndpoint", "handfast join"),
            (("a", "--token", TOKEN.text, "--discovery-file", "f"), "TwoDiscoveryMethods", "--tls-bootstrap-token"),
            (("a", "--discovery-token", TOKEN.text, "--discovery-file", "f"), "TwoDiscoveryMethods", "leave one"),
            (("--discovery-file", "f"), "NoBootstrapToken", "--tls-bootstrap-token"),
            (("a", "--token", "bad", *PINNED), "BadBootstrapToken", "six letters"),
            (("http://a", "--token", TOKEN.text, *PINNED), "BadEndpoint", "https"),
            (("a", "--token", TOKEN.text, "--discovery-token-ca-cert-hash", "foo"), "BadPin", ""),
            (("a", "--token", TOKEN.text, "--token-file", "f", *PINNED), "Usage", "leave one"),
            (("a", "--token-file", "-", "--tls-bootstrap-token-file", "-", *PINNED), "Usage", "into a file"),
            (("--tls-bootstrap-token", "-", "--discovery-file", "-"), "Usage", "into a file"),
            (("a", "--token", TOKEN.text, *PINNED, "--timeout", "soon"), "Usage", "168h"),
            (("a", "--token", TOKEN.text, *PINNED, "--timeout", "0s"), "Usage", "168h"),
            (("a", "--token", TOKEN.text, *PINNED, "--timeout", "169h"), "Usage", "168h"),
            (("a", "--token", TOKEN.text, *PINNED, "--print-kubeconfig", "-o", "json"), "Usage", "leave one"),
        ],
    )
    def test_wrong_usage(self, capsys, words, reason, hint):
        assert run(*words) == 2
        out, err = capsys.readouterr()
        assert out == ""
        if "json" in words:
            found = json.loads(err)
            assert (found["reason"], hint in found["hint"]) == (reason, True)
        else:
            assert err.endswith(f"reason: {reason}\n")
            assert hint in err
        assert TOKEN.secret not in err
        assert FakeDiscovery.made == []

    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (diagnosis.unknown_token(TOKEN), 1),
            (diagnosis.explain(diagnosis.Trouble.CONNECTION_REFUSED, "https://a", "", None), 3),
        ],
    )
    def test_not_found(self, capsys, monkeypatch, tmp_path, error, code):
        monkeypatch.setattr(FakeDiscovery, "error", error)
        assert run("a", "--token", TOKEN.text, *PINNED) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith(f"hint: {error.hint}\nreason: {error.reason}\n")
        assert list(tmp_path.iterdir()) == []

    def test_nowhere_to_write(self, capsys, tmp_path):
        (tmp_path / "no").touch()
        assert run("a", "--token", TOKEN.text, *PINNED, "--bootstrap-kubeconfig", "no/such/file") == 1
        err = capsys.readouterr().err
        assert "name another file with --bootstrap-kubeconfig" in err
        assert err.endswith("reason: NotADirectory\n")

    def test_stdin_without_end(self, capsys, monkeypatch):
        stdin(monkeypatch, b"x" * ((1 << 20) + 1))
        assert run("--tls-bootstrap-token", TOKEN.text, "--discovery-file", "-") == 1
        assert capsys.readouterr().err.endswith("reason: FileTooLarge\n")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("168h", 604800)])
def test_the_timeout_is_that_of_the_search(text, seconds):
    assert run("a", "--token", TOKEN.text, *PINNED, "--timeout", text) == 0
    assert FakeDiscovery.made[0].timeout == seconds
