# SPDX-License-Identifier: Apache-2.0
"""`handfast machine credentials`: what is typed, what is refused, and what is read afterwards."""

from __future__ import annotations

import json
import stat

import pytest

from handfast.bootstrap import kubeconfig
from handfast.cli import machine_credentials as command
from handfast.cli import main, output
from handfast.client import machine_credentials as client_credentials

SERVER = "https://api-int.example:6443"


def run(*words: object) -> int:
    return output.run(main.command, ["machine", "credentials", *map(str, words)])


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.delenv("HANDFAST_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_masters_credential_needs_no_api_server(tmp_path, capsys):
    assert run("create", "--kind", "master", "--server", SERVER, "--out", tmp_path / "out", "-o", "json") == 0
    facts = json.loads(capsys.readouterr().out)
    path = tmp_path / "out" / "kubeconfig-kubelet"
    assert facts["kubeconfig"] == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kubeconfig.parse(path.read_text()).cluster.server == SERVER
    assert (facts["kind"], facts["signers"]) == ("master", 1)


def test_a_person_is_told_what_to_type_next_and_never_the_key(tmp_path, capsys):
    for _ in range(2):
        assert run("create", "--kind", "master", "--server", SERVER, "--out", tmp_path / "out") == 0
    told = capsys.readouterr()
    assert f"kubectl apply --filename {tmp_path / 'out' / 'kubelet-bootstrap-kubeconfig.yaml'}" in told.out
    assert "kubeconfig-kubelet-2 (0600), good until" in told.err
    assert "with 2 signers" in told.err
    assert "the kubeconfig names no CA" in told.err
    assert "PRIVATE" not in told.out + told.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create", "--kind", "master", "--out", "o"), "--kind master needs --server"),
        (("create", "--kind", "boss", "--out", "o"), "'boss' is not one of"),
        (
            ("create", "--kind", "master", "--server", SERVER, "--out", "o", "--machine", "m"),
            "--machine does not go with",
        ),
        (("create", "--kind", "worker", "--out", "o", "--ttl", "1h"), "--ttl does not go with"),
        (("create", "--kind", "worker", "--out", "o", "--server-ca", "f"), "--server-ca does not go with"),
        (("revoke", "--kind", "master", "--all"), "--all does not go with --kind master"),
        (("revoke",), "missing option '--kind'"),
    ],
)
def test_what_does_not_fit_together_is_wrong_usage(tmp_path, capsys, words, says):
    assert run(*words) == 2
    assert says in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("server", ["http://api.example", "api.example:6443", "https://u:p@api.example"])
def test_a_server_that_is_no_https_url_is_refused(tmp_path, capsys, server):
    assert run("create", "--kind", "master", "--server", server, "--out", tmp_path / "o") == 1
    assert "API endpoint" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()


def test_a_ca_that_is_none_is_refused_and_nothing_is_written(tmp_path, capsys):
    (tmp_path / "ca.crt").write_text("no certificate")
    words = ("--kind", "master", "--server", SERVER, "--server-ca", tmp_path / "ca.crt", "--out", tmp_path / "o")
    assert run("create", *words) == 1
    assert not list((tmp_path / "o").iterdir())


CUT = client_credentials.Open(
    objects=("Secret n/a",),
    requests=tuple(f"csr-{number}" for number in range(12)),
    connections=3,
    watches=2,
    staying=("Secret n/own",),
)


def test_what_was_cut_and_what_stays_is_told():
    text = command._cut_text("worker", CUT, dry_run=False)
    assert text.splitlines() == [
        "Secret n/a deleted",
        "3 open connections and 2 open watches of it are refused",
        f"12 open requests denied: {', '.join(CUT.requests[:10])}, …",
        "1 tokens of single machines stay good; --all revokes them, too: Secret n/own",
    ]


def test_a_dry_run_says_would():
    text = command._cut_text("worker", CUT, dry_run=True)
    assert "Secret n/a would be deleted" in text
    assert "would be refused" in text
    assert "would be denied" in text


def test_nothing_to_revoke_and_a_server_that_does_not_tell_are_said():
    nothing = client_credentials.Open(objects=(), requests=(), connections=None, watches=None)
    assert "there is no master credential to revoke" in command._cut_text("master", nothing, dry_run=False)
    silent = client_credentials.Open(objects=("ConfigMap a/b",), requests=(), connections=None, watches=None)
    assert "does not tell" in command._cut_text("master", silent, dry_run=False)
