# SPDX-License-Identifier: Apache-2.0
"""What a machine is answered: which files, in which order, in which version, and what is in them."""

from __future__ import annotations

import json

import pytest

from handfast.rules.machine_config import data_urls, host_paths, ignition, rendering, served, spec2
from tests.unit.rules import machine_config_cases as cases

KUBECONFIG = b"kind: Config\n"
CA = b"-----BEGIN CERTIFICATE-----\n"
UPDATE = cases.file("/etc/coreos/update.conf", "data:,")
VERSIONS = ["3.5.0", "3.4.0", "3.3.0", "3.2.0", "3.1.0", "2.2.0"]


def rendered(*documents):
    return rendering.render("worker", documents, cases.Credential(), "1.2.3")


def answer(document, version="3.5.0", hostname="", ca=CA):
    return json.loads(served.answer(document, KUBECONFIG, ca, version, hostname))


def paths(body):
    return [file["path"] for file in body["storage"]["files"]]


def contents(body, path):
    (file,) = [file for file in body["storage"]["files"] if file["path"] == path]
    return data_urls.decode(data_urls.Source(url=file["contents"]["source"]), ignition.FILE_LIMIT, path)


# --- TestEncapsulated -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_encapsulated_is_last_and_has_the_version_that_was_asked_for(version):
    document = rendered(cases.machine_config("50-update", cases.files(UPDATE)))
    body = answer(document, version)
    assert paths(body)[0] == "/etc/coreos/update.conf"
    assert paths(body)[-1] == "/etc/ignition-machine-config-encapsulated.json"
    machine_config = json.loads(contents(body, host_paths.ENCAPSULATED))
    assert machine_config["spec"]["config"] == {"ignition": {"version": version}}
    assert machine_config["metadata"]["name"] == document["metadata"]["name"]
    assert document["spec"]["config"]["storage"]["files"][0]["path"] == "/etc/coreos/update.conf"


# --- the files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_files_are_added_in_order(version):
    document = rendered(cases.machine_config("50-update", cases.files(UPDATE)))
    document["metadata"]["managedFields"] = [{"manager": "someone"}]
    body = answer(document, version, "worker-1")
    assert body["ignition"]["version"] == version
    assert paths(body) == [
        "/etc/coreos/update.conf",
        "/etc/kubernetes/kubelet-ca.crt",
        "/etc/machine-config-daemon/node-annotations.json",
        "/etc/kubernetes/kubeconfig",
        "/etc/mcs-machine-config-content.json",
        "/etc/hostname",
        "/etc/ignition-machine-config-encapsulated.json",
    ]
    assert contents(body, host_paths.KUBELET_CA) == CA
    assert contents(body, host_paths.KUBECONFIG) == KUBECONFIG
    assert contents(body, host_paths.HOSTNAME) == b"worker-1\n"
    del document["metadata"]["managedFields"]
    assert json.loads(contents(body, host_paths.CONTENT)) == document
    assert contents(body, host_paths.CONTENT).startswith(b'{\n    "apiVersion"')
    name = document["metadata"]["name"]
    assert json.loads(contents(body, host_paths.NODE_ANNOTATIONS)) == {
        "machineconfiguration.openshift.io/currentConfig": name,
        "machineconfiguration.openshift.io/desiredConfig": name,
        "machineconfiguration.openshift.io/firstPivotConfig": name,
        "machineconfiguration.openshift.io/state": "Done",
    }


def test_an_added_file_overwrites_and_is_readable_but_for_what_may_hold_a_secret():
    for file in answer(rendered(), hostname="worker-1")["storage"]["files"]:
        assert file["overwrite"] is True
        assert file["mode"] == (0o600 if file["path"] in {host_paths.KUBECONFIG, host_paths.CONTENT} else 0o644)
        assert file["contents"]["source"].startswith("data:,")


def test_what_is_not_known_is_not_added():
    assert paths(answer(rendered(), ca=b"")) == [
        host_paths.NODE_ANNOTATIONS,
        host_paths.KUBECONFIG,
        host_paths.CONTENT,
        host_paths.ENCAPSULATED,
    ]


def test_a_file_at_the_same_path_is_replaced():
    own = cases.files(
        cases.file(host_paths.KUBECONFIG), cases.file(host_paths.KUBELET_CA), cases.file(host_paths.HOSTNAME)
    )
    document = rendered(cases.machine_config("50-own", own))
    body = answer(document)
    assert contents(body, host_paths.KUBECONFIG) == KUBECONFIG
    assert contents(body, host_paths.KUBELET_CA) == CA
    assert contents(body, host_paths.HOSTNAME) == b"hello"
    assert contents(answer(document, hostname="worker-1"), host_paths.HOSTNAME) == b"worker-1\n"


def test_what_is_served_is_a_configuration():
    document = rendered(cases.machine_config("50-update", cases.files(UPDATE)))
    for version in VERSIONS:
        body = answer(document, version, "worker-1")
        config = ignition.parse(spec2.upgraded(body, cases.WHERE) if version == spec2.VERSION else body, cases.WHERE)
        assert len(config.files) == 7


# --- kernel arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_kernel_arguments_are_where_the_version_has_them(version):
    arguments = cases.ignition(kernelArguments={"shouldExist": ["quiet"]})
    body = answer(rendered(cases.machine_config("50-quiet", arguments, kernelArguments=["nosmt"])), version)
    spec = json.loads(contents(body, host_paths.ENCAPSULATED))["spec"]
    if version in {"3.5.0", "3.4.0", "3.3.0"}:
        assert body["kernelArguments"] == {"shouldExist": ["quiet"]}
        assert spec["kernelArguments"] == ["nosmt"]
    else:
        assert not body.get("kernelArguments")
        assert spec["kernelArguments"] == ["nosmt", "quiet"]


def test_arguments_that_should_not_exist_have_no_older_form():
    arguments = cases.ignition(kernelArguments={"shouldExist": ["quiet"], "shouldNotExist": ["splash"]})
    document = rendered(cases.machine_config("50-quiet", arguments))
    for version in ("3.2.0", "2.2.0"):
        assert "kernelArguments is a field that came with 3.3.0" in cases.refusal(answer, document, version).message
