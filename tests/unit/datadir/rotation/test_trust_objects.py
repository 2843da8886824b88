# SPDX-License-Identifier: Apache-2.0
"""What a rotation reads and writes over the API: exactly the CA that is meant, and every place that tells of it."""

import base64
import datetime

import msgspec
import pytest

from handfast.api import objects, status
from handfast.bootstrap import cluster_info
from handfast.datadir.rotation import trust_objects
from handfast.pki import authority, bundles, jwt, keys, names
from handfast.rules import client_ca_bundle
from tests.unit.controllers import fake_api
from tests.unit.controllers.fake_api import failing

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
BUNDLE = ("configmaps", "kube-system", "extension-apiserver-authentication")


def ca(name, key=None):
    return authority.self_signed_ca(names.Subject(common_name=name), key or keys.generate(), NOW)


OLD_PRIVATE = keys.generate()
OLD, NEW, THEIRS = ca("old", OLD_PRIVATE), ca("new"), ca("theirs")
BOTH = OLD.pem + NEW.pem
OLD_KEY = OLD.certificate.public_key.fingerprint
LEAVING = (OLD.certificate.fingerprint, OLD_KEY)


class Transport:
    def __init__(self, document):
        self.body = msgspec.json.encode(document)

    async def request(self, method, path):
        assert (method, path) == ("GET", "/openid/v1/jwks")
        return self.body


class Client(fake_api.FakeClient):
    """… that knows field selectors on names."""

    async def pages(self, resource, scope, decoder, **more):
        name = scope.field_selector.removeprefix("metadata.name=")
        async for page in super().pages(resource, scope, decoder, **more):
            items = [item for item in page.items if name.startswith("type=") or name in {"", item["metadata"]["name"]}]
            yield type(page)(page.metadata, items)


@pytest.fixture
def client():
    made = Client()
    made.put("configmaps", BUNDLE[2], BUNDLE[1], data={"client-ca-file": (OLD.pem + THEIRS.pem).decode(), "x": "y"})
    return made


def publish(client, pem, namespace="default"):
    client.put("configmaps", "kube-root-ca.crt", namespace, data={"ca.crt": pem.decode()})


def tell_newcomers(client, pem):
    info = cluster_info.ClusterInfo(("https://a:1",), pem, "id")
    client.put("configmaps", "cluster-info", "kube-public", data={"kubeconfig": cluster_info.build(info), "jws": "s"})


def record_of(given):
    return client_ca_bundle.Record(certificates=given).text()


class TestClientCAs:
    def believed(self, client):
        found = bundles.TrustBundle.from_pem(client.objects[BUNDLE]["data"]["client-ca-file"].encode())
        return {anchor.fingerprint for anchor in found.anchors}

    async def test_one_is_added_and_one_removed_and_others_stay(self, client):
        assert await trust_objects.trust_client_ca(client, NEW.certificate.der)
        assert not await trust_objects.trust_client_ca(client, NEW.certificate.der), "twice is once"
        assert await trust_objects.distrust_client_ca(client, LEAVING)
        assert not await trust_objects.distrust_client_ca(client, LEAVING)
        assert self.believed(client) == {NEW.certificate.fingerprint, THEIRS.certificate.fingerprint}
        assert client.objects[BUNDLE]["data"]["x"] == "y"
        assert len(client.calls) == 2

    async def test_every_certificate_of_a_key_is_removed(self, client):
        again = ca("old again", OLD_PRIVATE)
        data = client.objects[BUNDLE]["data"]
        data["client-ca-file"] = (again.pem + NEW.pem).decode()
        assert await trust_objects.outdated(client, unwanted=LEAVING) == [
            "kube-system/extension-apiserver-authentication"
        ]
        assert await trust_objects.distrust_client_ca(client, LEAVING)
        assert self.believed(client) == {NEW.certificate.fingerprint}
        assert await trust_objects.outdated(client, unwanted=LEAVING) == []

    async def test_what_becomes_the_directorys_own_is_no_sources_any_more(self, client):
        data = client.objects[BUNDLE]["data"]
        both = {one.certificate.fingerprint: ("openshift-kube-apiserver/user-client-ca",) for one in (NEW, THEIRS)}
        data["client-ca-file"] = (OLD.pem + NEW.pem + THEIRS.pem).decode()
        data["handfast-client-ca-sources"] = record_of(both)
        assert await trust_objects.trust_client_ca(client, NEW.certificate.der), "the record is changed"
        record = client_ca_bundle.record(client.objects[BUNDLE])
        assert set(record.certificates) == {THEIRS.certificate.fingerprint}
        assert not await trust_objects.trust_client_ca(client, NEW.certificate.der)
        # What is removed, and what else is recorded, leaves the record as it is.
        assert await trust_objects.distrust_client_ca(client, LEAVING)
        assert client_ca_bundle.record(client.objects[BUNDLE]) == record

    async def test_a_source_that_brings_it_back_is_named(self, client):
        given = {OLD.certificate.fingerprint: ("openshift-config/a", "openshift-config-managed/b")}
        client.objects[BUNDLE]["data"]["handfast-client-ca-sources"] = record_of(given)
        assert await trust_objects.outdated(client, unwanted=LEAVING) == [
            "kube-system/extension-apiserver-authentication (given by openshift-config-managed/b, openshift-config/a)"
        ]

    @pytest.mark.parametrize("conflicts, succeeds", [(1, True), (99, False)])
    async def test_somebody_else_writes_meanwhile(self, client, conflicts, succeeds):
        left = [conflicts]

        def before(verb, plural, name):
            if verb == "update" and left[0]:
                left[0] -= 1
                raise status.conflict(plural, "", name)

        client.before = before
        if succeeds:
            assert await trust_objects.trust_client_ca(client, NEW.certificate.der)
        else:
            with pytest.raises(status.StatusError) as caught:
                await trust_objects.trust_client_ca(client, NEW.certificate.der)
            assert caught.value.reason == "Conflict"

    async def test_a_refusal_is_passed_on(self, client):
        client.before = failing(status.StatusError("Forbidden", "no"), verb="update")
        with pytest.raises(status.StatusError, match="no"):
            await trust_objects.trust_client_ca(client, NEW.certificate.der)


class TestTold:
    async def test_every_place_is_looked_at(self, client):
        wanted = NEW.certificate.fingerprint
        assert await trust_objects.outdated(client, wanted=wanted) == [], "nobody was told anything yet"
        publish(client, BOTH)
        publish(client, OLD.pem, "late")
        publish(client, b"broken", "odd")
        tell_newcomers(client, OLD.pem)
        lacking = ["late/kube-root-ca.crt", "odd/kube-root-ca.crt", "kube-public/cluster-info"]
        assert await trust_objects.outdated(client, wanted=wanted) == lacking

    async def test_nor_may_the_retired_one_be_told(self, client):
        publish(client, NEW.pem)
        tell_newcomers(client, BOTH)
        await trust_objects.distrust_client_ca(client, LEAVING)
        for unwanted in ([OLD.certificate.fingerprint], [OLD_KEY]):
            assert await trust_objects.outdated(client, unwanted=unwanted) == ["kube-public/cluster-info"]

    async def test_a_cluster_info_that_names_no_ca_tells_nothing_wrong(self, client):
        client.put("configmaps", "cluster-info", "kube-public", data={})
        assert await trust_objects.outdated(client, wanted="x") == []
        tell_newcomers(client, None)
        assert await trust_objects.outdated(client, wanted="x") == []
        assert await trust_objects.publish(client, BOTH) == 0

    async def test_telling_changes_what_is_there_and_makes_nothing(self, client):
        publish(client, OLD.pem)
        publish(client, BOTH, "done")
        tell_newcomers(client, OLD.pem)
        assert await trust_objects.publish(client, BOTH) == 2
        assert await trust_objects.publish(client, BOTH) == 0
        assert await trust_objects.outdated(client, wanted=NEW.certificate.fingerprint) == []
        data = client.objects["configmaps", "kube-public", "cluster-info"]["data"]
        assert cluster_info.read(data["kubeconfig"]) == cluster_info.ClusterInfo(("https://a:1",), BOTH, "id")
        assert data["jws"] == "s"

    async def test_the_published_keys_are_named_by_their_ids(self, client):
        client.transport = Transport({"keys": [{"kid": "a"}, {"kid": "b"}]})
        assert await trust_objects.published_keys(client) == {"a", "b"}


class TestDependants:
    async def test_nodes_that_run(self, client):
        for name, ago in (("a", 5), ("b", 500), ("c", -500)):
            renewed = objects.micro_timestamp(NOW - datetime.timedelta(seconds=ago))
            spec = {"renewTime": renewed, "leaseDurationSeconds": 40}
            client.put("leases", name, "kube-node-lease", spec=spec)
            client.put("leases", f"not-{name}", "kube-system", spec=spec)
        assert await trust_objects.running_nodes(client, NOW) == {"a", "c"}

    async def test_tokens_in_secrets(self, client):
        old, new = keys.generate(), keys.generate()

        def secret(name, data):
            client.put("secrets", name, "default", data=data)

        for name, key in (("old", old), ("new", new)):
            token = jwt.Signer(key).sign({"iss": "x"})
            secret(name, {"token": base64.b64encode(token.encode()).decode()})
        secret("empty", {})
        secret("odd", {"token": "%%%"})
        assert await trust_objects.old_tokens(client, new.public) == ["default/odd", "default/old"]
