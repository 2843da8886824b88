# SPDX-License-Identifier: Apache-2.0
"""Making a cluster joinable: what is created, what is left alone, and when there is a token."""

import datetime

import pytest

from handfast import errors
from handfast.api import status
from handfast.bootstrap import cluster_info, tokens
from handfast.client import introduction
from handfast.client import tokens as over_api
from handfast.pki import authority, keys, names
from tests.unit.controllers.fake_api import FakeClient

NOW = datetime.datetime(2026, 11, 15, 12, tzinfo=datetime.UTC)
TTL = datetime.timedelta(hours=24)
TOKEN = tokens.parse("abcdef.0123456789abcdef")
SERVERS = ("https://10.0.0.1:6443", "https://b:1")


class FakeTransport:
    async def request(self, method, path):
        return b'{"gitVersion":"v1.37.0+handfast-0.1.0"}'


@pytest.fixture(scope="module")
def ca():
    return authority.self_signed_ca(names.Subject(common_name="x"), keys.generate(), NOW).pem


@pytest.fixture
def client():
    made = FakeClient()
    made.transport = FakeTransport()  # type: ignore[assignment]
    made.put("namespaces", "kube-system", metadata={"uid": "the-uid"})
    return made


def wanted(ca, **changes):
    return introduction.Wanted(**{"servers": SERVERS, "ca": ca, "token": TOKEN, "named": False, "ttl": TTL, **changes})


async def test_a_new_cluster(client, ca):
    made = await introduction.ensure(client, wanted(ca), NOW)
    assert made.new
    assert {verb for verb, _ in made.objects} == {"created"}
    assert made.objects[-2:] == [
        ("created", "Secret kube-system/bootstrap-token-abcdef"),
        ("created", "ConfigMap kube-system/kubeadm-config"),
    ]
    assert len(made.objects) == 15
    assert (made.token, made.expires) == (TOKEN, NOW + TTL)
    assert made.join_command.startswith("handfast join 10.0.0.1:6443 b:1 --token abcdef.0123456789abcdef --disc")
    assert made.join_command.count("sha256:") == 1
    assert TOKEN.secret not in repr(made)
    published = client.objects["configmaps", "kube-public", "cluster-info"]["data"]["kubeconfig"]
    assert cluster_info.read(published) == cluster_info.ClusterInfo(SERVERS, ca, "the-uid")
    config = client.objects["configmaps", "kube-system", "kubeadm-config"]["data"]["ClusterConfiguration"]
    assert 'controlPlaneEndpoint: "10.0.0.1:6443"' in config
    assert 'kubernetesVersion: "v1.37.0"' in config


async def test_twice_changes_nothing(client, ca):
    await introduction.ensure(client, wanted(ca), NOW)
    before, calls = dict(client.objects), len(client.calls)
    again = await introduction.ensure(client, wanted(ca, token=tokens.parse("zzzzzz.0123456789abcdef")), NOW)
    assert not again.new
    assert {verb for verb, _ in again.objects} == {"kept"}
    assert (again.token, again.join_command) == (None, "")
    assert client.objects == before
    assert len(client.calls) == calls


async def test_no_token(client, ca):
    made = await introduction.ensure(client, wanted(ca, token=None), NOW)
    assert (made.token, made.expires) == (None, None)
    assert not [key for key in client.objects if key[0] == "secrets"]


async def test_what_was_deleted_stays_deleted_on_later_starts(client, ca):
    await introduction.ensure(client, wanted(ca, first_start_only=True), NOW)
    binding = ("rolebindings", "kube-public", "kubeadm:bootstrap-signer-clusterinfo")
    del client.objects[binding]
    made = await introduction.ensure(client, wanted(ca, first_start_only=True), NOW)
    assert (made.new, made.objects, made.token) == (False, [], None)
    assert binding not in client.objects
    # Asked for in so many words, it comes back.
    made = await introduction.ensure(client, wanted(ca), NOW)
    assert [title for verb, title in made.objects if verb == "created"] == [
        "RoleBinding kube-public/kubeadm:bootstrap-signer-clusterinfo"
    ]


async def test_what_says_something_else_is_kept_and_told(client, ca):
    client.put("clusterroles", "kubeadm:get-nodes", rules=[])
    made = await introduction.ensure(client, wanted(ca), NOW)
    assert made.objects[0] == ("kept, though it says something else:", "ClusterRole kubeadm:get-nodes")
    assert client.objects["clusterroles", "", "kubeadm:get-nodes"]["rules"] == []


async def test_a_first_start_that_was_cut_short_is_completed(client, ca):
    def die(verb, plural, name):
        if name == "kubeadm-config" and verb == "create":
            raise errors.Unavailable("gone")

    client.before = die
    with pytest.raises(errors.Unavailable):
        await introduction.ensure(client, wanted(ca, first_start_only=True), NOW)
    client.before = lambda *_: None
    later = NOW + datetime.timedelta(minutes=1)
    made = await introduction.ensure(client, wanted(ca, first_start_only=True), later)
    assert made.new
    # The same token, which is there by now, with the end that it has.
    assert (made.token, made.expires) == (TOKEN, NOW + TTL)
    assert ("kept", "Secret kube-system/bootstrap-token-abcdef") in made.objects


class TestANamedToken:
    async def test_is_made_in_an_old_cluster_too(self, client, ca):
        await introduction.ensure(client, wanted(ca, token=None), NOW)
        made = await introduction.ensure(client, wanted(ca, named=True, ttl=None), NOW)
        assert (made.token, made.expires) == (TOKEN, None)
        assert ("created", "Secret kube-system/bootstrap-token-abcdef") in made.objects

    async def test_is_kept(self, client, ca):
        await introduction.ensure(client, wanted(ca, named=True), NOW)
        made = await introduction.ensure(client, wanted(ca, named=True), NOW + TTL)
        assert made.expires == NOW + TTL
        assert ("kept", "Secret kube-system/bootstrap-token-abcdef") in made.objects

    async def test_is_not_exchanged_for_another(self, client, ca):
        await introduction.ensure(client, wanted(ca, named=True), NOW)
        other = tokens.parse("abcdef.ffffffffffffffff")
        with pytest.raises(errors.Refused, match='a token with id "abcdef" already exists'):
            await introduction.ensure(client, wanted(ca, token=other, named=True), NOW)
        assert tokens.read(client.objects["secrets", "kube-system", "bootstrap-token-abcdef"]).token == TOKEN

    async def test_that_is_deleted_at_the_same_moment_is_an_error(self, client, ca, monkeypatch):
        await introduction.ensure(client, wanted(ca, named=True), NOW)

        async def gone(*_):
            return None

        monkeypatch.setattr(over_api, "find", gone)
        with pytest.raises(errors.Refused, match="already exists"):
            await introduction.ensure(client, wanted(ca, named=True), NOW)


async def test_other_refusals_end_it(client, ca):
    def forbid(verb, plural, name):
        if verb == "create":
            raise status.forbidden(plural, "", name, "no")

    client.before = forbid
    with pytest.raises(status.StatusError) as caught:
        await introduction.ensure(client, wanted(ca), NOW)
    assert (caught.value.reason, client.calls) == ("Forbidden", [])


async def test_forbidden_tokens_end_it(client, ca):
    def forbid(verb, plural, name):
        if (verb, plural) == ("create", "secrets"):
            raise status.forbidden(plural, "", name, "no")

    client.before = forbid
    with pytest.raises(status.StatusError) as caught:
        await introduction.ensure(client, wanted(ca), NOW)
    assert (caught.value.reason, caught.value.message.partition(" ")[0]) == ("Forbidden", "secrets")
    assert not [key for key in client.objects if key[0] == "secrets"]


async def test_without_a_ca_there_is_nothing_to_pin(client):
    with pytest.raises(errors.Refused, match="no CA"):
        await introduction.ensure(client, wanted(None), NOW)
