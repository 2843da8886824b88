# SPDX-License-Identifier: Apache-2.0
"""`handfast serve`: what is refused before anything runs, and what the hidden preparation prints."""

import json
import socket

import pytest
import yaml

from handfast.cli import main, output
from handfast.runtime import files


def run(*arguments):
    return output.run(main.command, ["serve", *map(str, arguments)])


def test_several_roles_are_refused_with_a_way_out(capsys):
    assert run("apiserver,controllers") == 2
    err = capsys.readouterr().err
    assert '"apiserver,controllers"' in err
    assert "handfast up" in err


def test_an_unknown_role(capsys):
    assert run("kitchen") == 2
    assert "kitchen" in capsys.readouterr().err


def test_help_shows_roles_and_no_hidden_flags(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    assert "\n  apiserver " in out
    assert "\n  controllers " in out
    assert "prepare" not in out
    assert run("apiserver", "--help") == 0
    out = capsys.readouterr().out
    assert "--listen" in out
    assert "--listen-fd" not in out
    assert "--supervised" not in out


def test_a_directory_that_is_in_use(tmp_path, capsys):
    lock = files.lock_directory(tmp_path)
    assert run("apiserver", "--dir", tmp_path, "--listen", "127.0.0.1:0") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "reason: DirectoryInUse"
    lock.release()


def test_a_taken_port_leaves_the_directory_free(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run("apiserver", "--dir", tmp_path, "--listen", f"127.0.0.1:{taken.getsockname()[1]}") == 1
    assert capsys.readouterr().err.splitlines()[-1] == "reason: AddressInUse"
    files.lock_directory(tmp_path).release()


def test_preparation_prints_what_it_did(tmp_path, capsys):
    assert run("prepare", "--dir", tmp_path / "d", "--listen", "127.0.0.1:1") == 0
    assert ["pki/ca.crt", "created"] in json.loads(capsys.readouterr().out)["done"]
    assert run("prepare", "--dir", tmp_path / "d", "--listen", "127.0.0.1:1", "--again") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["done"], found["warning"]) == ([], None)
    # Two thirds of a year.
    assert 240 < found["seconds"] / 86400 < 244


@pytest.mark.parametrize("given", ["--tls-cert-file", "--tls-private-key-file"])
def test_a_certificate_and_its_key_come_together(tmp_path, capsys, given):
    assert run("apiserver", "--dir", tmp_path / "d", given, "x.pem") == 2
    assert "are given together" in capsys.readouterr().err
    assert not (tmp_path / "d").exists()


def test_an_unknown_controller(tmp_path, capsys):
    assert run("controllers", "--dir", tmp_path, "--controllers", "nope") == 2
    assert "there is no controller 'nope'; there are: " in capsys.readouterr().err


@pytest.mark.parametrize("kubeconfig", [[], ["--kubeconfig", "/nonexistent/kubeconfig"]])
def test_controllers_without_a_kubeconfig(tmp_path, capsys, kubeconfig):
    assert run("controllers", "--dir", tmp_path, "--admin-listen", "127.0.0.1:0", *kubeconfig) in {1, 3}
    err = capsys.readouterr().err
    assert (kubeconfig[1] if kubeconfig else str(tmp_path / "controllers.conf")) in err
    assert "hint: name another kubeconfig with --kubeconfig" in err
    assert "--dir" not in err
    assert "Traceback" not in err


class TestManifest:
    def test_for_kubectl_apply(self, tmp_path, capsys):
        assert run("controllers", "--dir", tmp_path, "--print-manifest", "--controllers", "bootstrapsigner") == 0
        out, err = capsys.readouterr()
        assert [each["kind"] for each in yaml.safe_load_all(out)] == [
            "ServiceAccount",
            *("Role", "RoleBinding") * 2,
        ]
        assert err == ""
        assert list(tmp_path.iterdir()) == []

    def test_what_a_cluster_has_of_its_own_is_named(self, tmp_path, capsys):
        assert run("controllers", "--dir", tmp_path, "--print-manifest") == 0
        out, err = capsys.readouterr()
        assert "CustomResourceDefinition" in out
        assert err.startswith("note: nothing is printed for namespace-controller, ")
        assert "start with --controllers certificatesigningrequest-approving-controller," in err

    def test_of_nothing(self, tmp_path, capsys):
        names = "namespace-controller,event-ttl-controller"
        assert run("controllers", "--dir", tmp_path, "--print-manifest", "--controllers", names) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "there is none for namespace-controller, event-ttl-controller: every cluster has its own" in err
        assert "hint: choose from: --controllers cluster-info-publisher-controller," in err

    def test_of_a_controller_that_there_is_not(self, tmp_path, capsys):
        assert run("controllers", "--dir", tmp_path, "--print-manifest", "--controllers", "nope") == 2
        assert "there is no controller 'nope'; there are: " in capsys.readouterr().err
