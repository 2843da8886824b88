# SPDX-License-Identifier: Apache-2.0
"""Renderings: the name is of the pool, the spec and the credential, and of nothing else; the credential is nowhere in it."""

from __future__ import annotations

import copy
import json
import re

import pytest

from handfast.rules.machine_config import names, rendering
from tests.unit.rules import machine_config_cases as cases

ONE = cases.machine_config("10-one", cases.files(cases.file()), kernelArguments=["quiet"], osImageURL="image")
OTHER = cases.machine_config("20-other", cases.units({"name": "a.service", "enabled": True}), extensions=["usbguard"])
NEW = cases.Credential(names.SERVICE_ACCOUNT, "sha256:" + "1" * 64)


def render(*documents, pool="worker", credential=None, version="1.2.3"):
    return rendering.render(pool, documents, credential or cases.Credential(), version)


def name(*documents, **named):
    return render(*documents, **named)["metadata"]["name"]


def configuration(*documents, **named):
    return render(*documents, **named)["metadata"]["annotations"][names.CONFIGURATION]


def test_a_rendering_has_the_merged_spec_and_says_from_what():
    document = render(ONE, OTHER)
    assert re.fullmatch(r"rendered-worker-[0-9a-f]{32}", document["metadata"]["name"])
    assert (document["kind"], document["apiVersion"]) == ("MachineConfig", "machineconfiguration.openshift.io/v1")
    annotations = document["metadata"]["annotations"]
    assert annotations[names.RENDERED_BY] == "1.2.3"
    assert annotations[names.CREDENTIAL] == "certificate sha256:" + "0" * 64
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", annotations[names.CONFIGURATION])
    assert document["spec"]["kernelArguments"] == ["quiet"]
    assert document["spec"]["config"]["storage"]["files"][0]["overwrite"] is True
    assert json.loads(json.dumps(document)) == document


def test_the_order_of_the_objects_does_not_count():
    assert render(ONE, OTHER) == render(OTHER, ONE)


def test_the_order_of_the_fields_does_not_count():
    turned = copy.deepcopy(ONE)
    turned["spec"] = dict(reversed(turned["spec"].items()))
    turned["spec"]["config"] = dict(reversed(turned["spec"]["config"].items()))
    assert name(turned) == name(ONE)


def test_another_pool_spec_or_credential_is_another_name():
    every = {name(ONE), name(ONE, pool="infra"), name(ONE, OTHER), name(ONE, credential=NEW)}
    assert len(every) == 4
    assert name(ONE, version="2.0.0") == name(ONE)


def test_two_that_differ_in_the_credential_alone_have_the_same_configuration():
    assert configuration(ONE) == configuration(ONE, credential=NEW) == configuration(ONE, pool="infra")
    assert configuration(ONE) != configuration(ONE, OTHER)


def test_a_pool_without_machine_configs_has_a_rendering():
    assert rendering.read(render()).config.document() == cases.ignition()


def test_no_rendering_shows_the_credential():
    class Whole(cases.Credential):
        kubeconfig = b"token: very-secret"

    text = json.dumps(render(ONE, credential=Whole()))
    assert "secret" not in text
    assert "certificate sha256:" in text


def test_a_rendering_is_read():
    rendered = rendering.read(render(ONE, OTHER, credential=NEW, pool="big-iron"))
    assert (rendered.pool, rendered.credential_kind, rendered.credential_digest) == ("big-iron", NEW.kind, NEW.digest)
    assert rendered.name == name(ONE, OTHER, credential=NEW, pool="big-iron")
    assert rendered.configuration_digest == configuration(ONE, OTHER)
    assert rendered.os_image_url == "image"
    assert rendered.kernel_arguments == ("quiet",)
    assert rendered.extensions == ("usbguard",)
    assert (rendered.fips, rendered.kernel_type) == (False, "default")
    assert [file.path for file in rendered.config.files] == ["/etc/motd"]


@pytest.mark.parametrize("change", ["spec", "credential", "pool"])
def test_a_rendering_that_was_changed_is_not_read(change):
    document = render(ONE)
    if change == "spec":
        document["spec"]["config"]["storage"]["files"][0]["contents"]["source"] = "data:,other"
    elif change == "credential":
        document["metadata"]["annotations"][names.CREDENTIAL] = f"{NEW.kind} {NEW.digest}"
    else:
        document["metadata"]["name"] = document["metadata"]["name"].replace("worker", "master")
    refused = cases.refusal(rendering.read, document)
    assert refused.reason == rendering.NOT_A_RENDERING
    assert "was changed after it was rendered" in refused.message


def test_what_is_not_rendered_is_not_read():
    assert cases.refusal(rendering.read, ONE).reason == rendering.NOT_A_RENDERING
    document = render(ONE)
    del document["metadata"]["annotations"]
    assert "is no rendering" in cases.refusal(rendering.read, document).message
