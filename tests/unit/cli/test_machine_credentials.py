# SPDX-License-Identifier: Apache-2.0
"""`handfast machine credentials`: what is typed, what is refused, and what is read afterwards."""

from __future__ import annotations

import json
import stat

import pytest

from handfast.bootstrap import kubeconfig
from handfast.cli import main, output

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
        (("revoke", "--kind", "worker", "--all", "--after-rollout"), "--all does not go with --after-rollout"),
        (("revoke", "--kind", "worker", "--no-wait", "--dry-run"), "--no-wait does not go with --dry-run"),
        (("revoke", "--kind", "worker", "--timeout", "1m", "--dry-run"), "--timeout does not go with --dry-run"),
        (("revoke", "--kind", "worker", "--timeout", "1m", "--no-wait"), "--timeout does not go with --no-wait"),
        (("revoke", "--kind", "worker", "--timeout", "soon"), '--timeout: "soon" is no duration'),
        (("revoke", "--kind", "infra"), "'infra' is not one of 'master', 'worker'"),
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
