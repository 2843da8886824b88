# SPDX-License-Identifier: Apache-2.0
"""Revoking a bootstrap credential over the API: what goes, what is denied, and what is told."""

import datetime

import msgspec
import pytest

from handfast import errors
from handfast.api import signing_requests, status
from handfast.client import machine_credentials
from handfast.rules import user_names
from handfast.rules.machines import bootstrapper, machine_tokens
from handfast.rules.tokens import service_accounts
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

METRICS = b"""# HELP handfast_bootstrap_connections Open
handfast_bootstrap_connections{kind="master"} 3.0
handfast_bootstrap_connections{kind="worker"} 1.0
handfast_bootstrap_connections{kind="requested"} 5.0
handfast_bootstrap_watches{kind="master"} 2.0
"""
CERTIFICATE = {user_names.CREDENTIAL_ID: ["X509SHA256=ab"]}


class Transport:
    def __init__(self, text=METRICS):
        self.text = text

    async def request(self, method, path, **_):
        assert (method, path) == ("GET", "/metrics")
        if self.text is None:
            raise errors.Unavailable("no")
        return self.text


OF_ACCOUNT = {"annotations": {"kubernetes.io/service-account.name": "node-bootstrapper"}}
OWN = {"labels": {machine_tokens.LABEL: "worker"}, "annotations": {machine_tokens.MACHINE: "fleet/m1"}}


class Client(FakeClient):
    """Tells the Secrets of tokens from those of single machines, as a server does by type and label."""

    async def pages(self, resource, scope, decoder, **more):
        async for page in super().pages(resource, scope, decoder, **more):
            if scope.label_selector:
                own = [each for each in page.items if (each["metadata"].get("labels") or {}).get(scope.label_selector)]
                yield msgspec.structs.replace(page, listed=own)
            elif scope.field_selector:
                typed = [each for each in page.items if f"type={each.get('type')}" == scope.field_selector]
                yield msgspec.structs.replace(page, listed=typed)
            else:
                yield page


@pytest.fixture
def client():
    fake = Client()
    fake.transport = Transport()  # type: ignore[assignment]
    fake.put("configmaps", bootstrapper.CONFIG_MAP, bootstrapper.MANAGED_NAMESPACE)
    for name in (bootstrapper.TOKEN_SECRET, "second"):
        fake.put("secrets", name, bootstrapper.NAMESPACE, type=service_accounts.LEGACY_TYPE, metadata=OF_ACCOUNT)
    fake.put("secrets", "node-bootstrapper-m1", bootstrapper.NAMESPACE, type="Opaque", metadata=OWN)
    fake.put("serviceaccounts", bootstrapper.ACCOUNT, bootstrapper.NAMESPACE)
    for name, user, extra in (
        ("by-master", bootstrapper.USER, CERTIFICATE),
        ("by-worker", bootstrapper.USER, {}),
        ("by-machine", bootstrapper.USER, {user_names.CREDENTIAL_ID: ["JTI=1"]}),
        ("by-token", "system:bootstrap:abcdef", {}),
    ):
        fake.put("certificatesigningrequests", name, spec={"username": user, "extra": extra}, status={})
    return fake


def denied(client):
    return [
        name
        for (plural, _, name), document in client.objects.items()
        if plural == "certificatesigningrequests" and document["status"].get("conditions")
    ]


async def test_a_dry_run_tells_and_changes_nothing(client):
    cut = await machine_credentials.look(client, "master")
    assert cut.objects == ("ConfigMap openshift-config-managed/kubelet-bootstrap-kubeconfig",)
    assert (cut.requests, cut.connections, cut.watches) == (("by-master",), 3, 2)
    assert client.calls == []


async def test_revoking_the_masters_cuts_nothing_of_the_workers(client):
    cut = await machine_credentials.revoke(client, "master", MovableClock())
    assert cut.requests == ("by-master",)
    assert denied(client) == ["by-master"]
    assert ("configmaps", bootstrapper.MANAGED_NAMESPACE, bootstrapper.CONFIG_MAP) not in client.objects
    assert ("secrets", bootstrapper.NAMESPACE, bootstrapper.TOKEN_SECRET) in client.objects
    (row,) = client.objects["certificatesigningrequests", "", "by-master"]["status"]["conditions"]
    assert (row["type"], row["reason"]) == ("Denied", "BootstrapCredentialRevoked")


async def test_revoking_the_workers_deletes_every_secret_with_a_token_of_the_account(client):
    cut = await machine_credentials.revoke(client, "worker", MovableClock())
    assert cut.objects == (
        "Secret openshift-machine-config-operator/node-bootstrapper-token",
        "Secret openshift-machine-config-operator/second",
    )
    assert (cut.connections, cut.watches) == (1, None)
    assert ("secrets", bootstrapper.NAMESPACE, "second") not in client.objects


async def test_the_token_of_a_single_machine_stays_and_is_named(client):
    cut = await machine_credentials.revoke(client, "worker", MovableClock())
    assert cut.staying == ("Secret openshift-machine-config-operator/node-bootstrapper-m1",)
    assert ("secrets", bootstrapper.NAMESPACE, "node-bootstrapper-m1") in client.objects
    assert denied(client) == ["by-worker"]


async def test_everything_takes_the_account_and_so_tokens_that_nobody_remembers(client):
    cut = await machine_credentials.revoke(client, "worker", MovableClock(), everything=True)
    where = bootstrapper.NAMESPACE
    assert (cut.objects[0], cut.objects[-1]) == (
        f"ServiceAccount {where}/node-bootstrapper",
        f"Secret {where}/node-bootstrapper-m1",
    )
    # What is told is what was deleted, in that order.
    deleted = [name for verb, _, name in client.calls if verb == "delete"]
    assert [title.rpartition("/")[2] for title in cut.objects] == deleted
    assert (cut.staying, cut.connections) == ((), 6)
    assert denied(client) == ["by-worker", "by-machine"]
    assert not [key for key in client.objects if key[0] in {"secrets", "serviceaccounts"}]


async def test_revoking_twice_is_harmless(client):
    await machine_credentials.revoke(client, "master", MovableClock())
    cut = await machine_credentials.revoke(client, "master", MovableClock())
    assert (cut.objects, cut.requests) == ((), ())


async def test_a_server_that_does_not_tell_is_no_reason_to_wait(client):
    client.transport.text = None
    cut = await machine_credentials.revoke(client, "worker", MovableClock())
    assert (cut.connections, cut.watches) == (None, None)
    assert denied(client) == ["by-worker"]


async def test_a_request_that_somebody_approves_meanwhile_stays_approved(client):
    approved = signing_requests.condition("Approved", "r", "m", "2026-01-31T12:00:00Z")
    key = ("certificatesigningrequests", "", "by-master")

    def race(verb, plural, name):
        if verb == "update" and plural == "certificatesigningrequests" and not client.objects[key]["status"]:
            client.objects[key]["status"] = {"conditions": [{"type": approved.type, "status": "True"}]}
            raise status.conflict(plural, "", name, "changed")

    client.before = race
    cut = await machine_credentials.revoke(client, "master", MovableClock())
    assert cut.requests == ()
    assert client.objects[key]["status"] == {"conditions": [{"type": "Approved", "status": "True"}]}


async def test_a_request_that_is_gone_is_not_denied(client):
    def race(verb, plural, name):
        if verb == "update":
            raise status.not_found(plural, "", name)

    client.before = race
    assert (await machine_credentials.revoke(client, "master", MovableClock())).requests == ()


async def test_a_request_that_others_keep_writing_is_an_error(client):
    def race(verb, plural, name):
        if verb == "update":
            raise status.conflict(plural, "", name, "changed")

    client.before = race
    with pytest.raises(errors.Unavailable, match="by-master"):
        await machine_credentials.revoke(client, "master", MovableClock())


async def test_of_requests_perhaps_only_the_older_ones_are_denied(client):
    for name, at in (("by-worker", "2030-01-01T00:00:00Z"), ("later", "2030-01-01T00:00:05Z")):
        spec = {"username": bootstrapper.USER, "extra": {}}
        meta = {"creationTimestamp": at}
        client.put("certificatesigningrequests", name, spec=spec, status={}, metadata=meta)
    then = datetime.datetime(2030, 1, 1, 0, 0, 5, tzinfo=datetime.UTC)
    assert await machine_credentials.deny(client, {"worker"}, MovableClock(), then) == ("by-worker",)
    assert denied(client) == ["by-worker"]
