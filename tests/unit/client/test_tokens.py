# SPDX-License-Identifier: Apache-2.0
"""Tokens over the API: what is created, found and deleted, and what a join command names."""

import dataclasses
import datetime

import pytest

from handfast import errors
from handfast.api import status
from handfast.bootstrap import cluster_info, diagnosis, first_objects
from handfast.bootstrap import tokens as grammar
from handfast.client import anonymous, connection, tokens
from handfast.pki import authority, keys, names, pem, pins
from tests.unit.controllers.fake_api import FakeClient
from tests.world.clock import MovableClock

NOW = datetime.datetime(2026, 11, 15, 12, 0, 0, 500_000, tzinfo=datetime.UTC)
USED = connection.Connection(server="https://10.0.0.1:6443", ca_pem=b"pem")


class FakeTransport:
    """Answers one path."""

    def __init__(self, body):
        self.body = body

    async def request(self, method, path):
        assert (method, path) == ("GET", "/version")
        return self.body


def document(text="abcdef.0123456789abcdef"):
    return first_objects.first_token(grammar.parse(text), None)


@pytest.fixture
def client():
    return FakeClient()


async def test_create_find_delete(client):
    await tokens.create(client, document())
    found = await tokens.find(client, "abcdef")
    assert found is not None
    assert grammar.read(found).token == grammar.parse("abcdef.0123456789abcdef")
    assert await tokens.delete(client, "abcdef")
    assert not await tokens.delete(client, "abcdef")
    assert await tokens.find(client, "abcdef") is None


async def test_an_id_that_is_taken(client):
    await tokens.create(client, document())
    with pytest.raises(errors.Refused, match=r'^a token with id "abcdef" already exists$') as refused:
        await tokens.create(client, document("abcdef.ffffffffffffffff"))
    assert refused.value.reason == "TokenExists"
    assert "handfast token delete abcdef" in (refused.value.hint or "")


async def test_other_refusals_stay_what_they_are(client):
    def forbid(verb, plural, name):
        raise status.forbidden("secrets", "", name, "no")

    client.before = forbid
    with pytest.raises(status.StatusError) as refused:
        await tokens.create(client, document())
    assert refused.value.reason == "Forbidden"
    with pytest.raises(status.StatusError) as refused:
        await tokens.delete(client, "abcdef")
    assert refused.value.reason == "Forbidden"


async def test_listed_by_name_and_selected_by_type(client, monkeypatch):
    scopes = []
    pages = client.pages

    def remember(resource, scope, decoder, **more):
        scopes.append(scope)
        return pages(resource, scope, decoder, **more)

    monkeypatch.setattr(client, "pages", remember)
    for text in ("zzzzzz.0123456789abcdef", "aaaaaa.0123456789abcdef"):
        await tokens.create(client, document(text))
    found = await tokens.listed(client)
    assert [each["metadata"]["name"] for each in found] == ["bootstrap-token-aaaaaa", "bootstrap-token-zzzzzz"]
    (scope,) = scopes
    assert (scope.namespace, scope.field_selector) == ("kube-system", "type=bootstrap.kubernetes.io/token")


async def test_what_a_join_command_names(client):
    assert await tokens.known_cluster(client, USED) == cluster_info.ClusterInfo(("https://10.0.0.1:6443",), b"pem", "")
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    own, other = (authority.self_signed_ca(names.Subject(common_name="x"), keys.generate(), now).pem for _ in range(2))
    used = dataclasses.replace(USED, ca_pem=own)
    info = cluster_info.ClusterInfo(("https://a:1", "https://b:2"), own, "uid")
    client.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": cluster_info.build(info)})
    assert await tokens.known_cluster(client, used) == info
    # Many may write there: no CA gets into a join command that whoever makes it does not trust.
    for ca in (other, own + other, None):
        tampered = cluster_info.ClusterInfo(("https://evil:1",), ca, "uid")
        client.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": cluster_info.build(tampered)})
        with pytest.raises(errors.Refused) as caught:
            await tokens.known_cluster(client, used)
        assert caught.value.reason == "UnknownAuthority"


def test_every_ca_of_a_bundle_has_its_pin():
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    made = [authority.self_signed_ca(names.Subject(common_name="x"), keys.generate(), now) for _ in range(2)]
    bundle = b"".join(ca.pem for ca in made)
    assert tokens.ca_pins(bundle) == tuple(
        str(pins.of_certificate(pem.certificates_from_pem(ca.pem)[0])) for ca in made
    )
    with pytest.raises(errors.Refused, match="no CA certificates found in kubeconfig"):
        tokens.ca_pins(None)


@pytest.mark.parametrize(
    ("version", "own"), [(b'{"gitVersion":"v1.37.0+handfast-0.1.0"}', True), (b'{"gitVersion":"v1.36.4"}', False)]
)
async def test_only_handfast_enforces_limits(client, version, own):
    client.transport = FakeTransport(version)
    assert await tokens.enforces_limits(client) is own


async def test_a_version_that_is_none(client):
    client.transport = FakeTransport(b"<html>")
    with pytest.raises(errors.Unavailable) as caught:
        await tokens.version(client)
    assert caught.value.reason == "BadAnswer"


class TestClockDifference:
    @pytest.mark.parametrize(
        ("date", "seconds"),
        [
            ("Sun, 15 Nov 2026 12:00:00 GMT", 0),
            ("Sun, 15 Nov 2026 12:01:30 GMT", 90),
            ("Sun, 15 Nov 2026 11:00:00 GMT", -3600),
        ],
    )
    async def test_a_clock_that_differs_is_told(self, monkeypatch, date, seconds):
        async def ask(url, trust, token=None):
            assert url == "https://10.0.0.1:6443/version"
            assert trust == anonymous.Trust(b"pem")
            return anonymous.Answer(403, b"", date)

        monkeypatch.setattr(anonymous, "ask", ask)
        found = await tokens.clock_difference(USED, MovableClock(NOW))
        assert found == datetime.timedelta(seconds=seconds)

    async def test_not_told(self, monkeypatch):
        async def ask(url, trust, token=None):
            return anonymous.Answer(200, b"")

        monkeypatch.setattr(anonymous, "ask", ask)
        assert await tokens.clock_difference(USED, MovableClock(NOW)) is None

    @pytest.mark.parametrize("date", ["Sun, 15 Nov 2026 12:00:00 -0000", "yesterday", "Sun, 99 Nov 2026 12:00:00 GMT"])
    async def test_told_in_another_form(self, monkeypatch, date):
        async def ask(url, trust, token=None):
            return anonymous.Answer(200, b"", date)

        monkeypatch.setattr(anonymous, "ask", ask)
        assert await tokens.clock_difference(USED, MovableClock(NOW)) is None

    async def test_an_address_that_is_none(self):
        used = dataclasses.replace(USED, server="https://a:99999")
        assert await tokens.clock_difference(used, MovableClock(NOW)) is None

    async def test_no_answer(self, monkeypatch):
        async def ask(url, trust, token=None):
            raise anonymous.Troubled(diagnosis.Trouble.NO_ANSWER)

        monkeypatch.setattr(anonymous, "ask", ask)
        assert await tokens.clock_difference(USED, MovableClock(NOW)) is None
