# SPDX-License-Identifier: Apache-2.0
"""What roles share: where a service in a Pod listens, and that the manifests say what the commands take."""

import click
import pytest

from handfast.cli import main, output, roles, serve
from handfast.rules.mesh import deployments, settings, sidecar
from handfast.runtime.addresses import Address


@pytest.mark.parametrize(
    ("pod_ip", "at"), [(None, "0.0.0.0:8080"), ("192.0.2.7", "192.0.2.7:8080"), ("2001:db8::7", "[2001:db8::7]:8080")]
)
def test_a_service_in_a_pod_listens_at_its_address(pod_ip, at):
    assert str(roles.in_pod(Address("0.0.0.0", 8080), pod_ip)) == at


@pytest.mark.parametrize("pod_ip", ["", "127.0.0.1", "::1", "pod.example", "$(POD_IP)", "0.0.0.0"])
def test_what_is_no_address_of_a_pod_is_wrong_usage(pod_ip):
    with pytest.raises(output.Usage, match="--pod-ip"):
        roles.in_pod(Address("0.0.0.0", 8080), pod_ip)


def test_every_container_of_the_manifests_has_words_that_its_command_takes():
    plan = sidecar.Plan(settings=settings.Settings(), anchors="PEM", created_by="test")
    rows = [row.document for row in deployments.objects_of(plan) if row.plural == "deployments"]
    # Below the real command: click keeps the help option that a command was first used with, for every test after this one.
    root = main.command.make_context("handfast", [], resilient_parsing=True)
    parent = click.Context(serve.command, parent=root, info_name="serve")
    for row in rows:
        (container,) = row["spec"]["template"]["spec"]["containers"]
        first, role, *words = container["args"]
        assert first == "serve"
        command = serve.command.get_command(parent, role)
        assert command is not None
        typed = [word.replace("$(POD_IP)", "192.0.2.7") for word in words]
        parsed = command.make_context(role, typed, parent=parent).params
        assert parsed["namespace"] == "linkerd"
        assert parsed[f"{role}_listen"].startswith("0.0.0.0:")
    assert len(rows) == 3
