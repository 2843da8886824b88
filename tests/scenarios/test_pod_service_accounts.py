# SPDX-License-Identifier: Apache-2.0
"""What Pods get of their service accounts, over real TLS: the name, the token's volume, the pull secrets, or a refusal.

Proves: a Pod created right after its namespace waits for the account that a controller makes; one whose account is not
there is refused; and what Pod and account say about token and pull secrets is done.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.scenarios.granting import made
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def pod(name: str = "p", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i"}
    return {"metadata": {"name": name, **(metadata or {})}, "spec": {"containers": [container], **spec}}


async def refused(world: worlds.World, document: Any, says: str, path: str = PODS) -> None:
    answer = await world.request("POST", path, document)
    assert (answer.status, answer.reason) == (403, "Forbidden"), answer.body
    assert says in answer.message
    name = document["metadata"]["name"]
    assert (await world.get(f"{path}/{name}")).status == 404


async def test_the_default_account(world: worlds.World) -> None:
    # What a client sends along under the old name, or twice, does not matter.
    found = (await made(world, PODS, pod(initContainers=[{"name": "i", "image": "i"}])))["spec"]
    assert (found["serviceAccountName"], found["serviceAccount"]) == ("default", "default")
    (volume,) = found["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    assert volume["projected"]["sources"][0] == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert volume["projected"]["sources"][1]["configMap"]["name"] == "kube-root-ca.crt"
    for container in (*found["containers"], *found["initContainers"]):
        assert container["volumeMounts"] == [{"name": volume["name"], "readOnly": True, "mountPath": MOUNT}]
    assert "imagePullSecrets" not in found
    # The Pod can be written back as it was read.
    stored = (await world.get(f"{PODS}/p")).json()
    assert (await world.request("PUT", f"{PODS}/p", stored)).status == 200


async def test_a_pod_waits_for_the_default_account(world: worlds.World) -> None:
    await made(world, "/api/v1/namespaces", {"metadata": {"name": "new"}})
    path = "/api/v1/namespaces/new/pods"
    waiting = asyncio.ensure_future(world.request("POST", path, pod()))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    # Another account, and the same name elsewhere, are not what it waits for.
    await made(world, "/api/v1/namespaces/new/serviceaccounts", {"metadata": {"name": "other"}})
    await world.ensure_service_account("kube-system")
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    await made(world, "/api/v1/namespaces/new/serviceaccounts", {"metadata": {"name": "default"}})
    answer = await waiting
    assert (answer.status, answer.json()["spec"]["serviceAccountName"]) == (201, "default")


@pytest.mark.slow
@pytest.mark.on_etcd
async def test_a_default_account_that_never_comes(world: worlds.World) -> None:
    await made(world, "/api/v1/namespaces", {"metadata": {"name": "new"}})
    await refused(
        world,
        pod(),
        'error looking up service account new/default: serviceaccount "default" not found',
        "/api/v1/namespaces/new/pods",
    )


async def test_a_missing_account(world: worlds.World) -> None:
    says = 'pods "{}" is forbidden: error looking up service account default/absent: serviceaccount "absent" not found'
    named: dict[str, dict[str, Any]] = {
        "p": {"serviceAccountName": "absent"},
        "q": {"serviceAccount": "absent"},
    }
    for name, spec in named.items():
        await refused(world, pod(name, **spec), says.format(name))
    # Once it is there, the same Pod is fine, under either name.
    await made(world, ACCOUNTS, {"metadata": {"name": "absent"}})
    for name, spec in named.items():
        found = (await made(world, PODS, pod(name, **spec)))["spec"]
        assert (found["serviceAccountName"], found["serviceAccount"]) == ("absent", "absent")


async def test_the_pod_and_then_its_account_decide_whether_a_token_is_mounted(world: worlds.World) -> None:
    for name in ("no", "yes"):
        document = {"metadata": {"name": name}, "automountServiceAccountToken": name == "yes"}
        await made(world, ACCOUNTS, document)
    # The Pod's own word counts before its account's; without either, the token is mounted.
    for account, wish, mounted in (
        ("no", None, False),
        ("no", True, True),
        ("no", False, False),
        ("yes", None, True),
        ("yes", False, False),
        ("default", False, False),
        ("default", None, True),
    ):
        spec: dict[str, Any] = {
            "serviceAccountName": account,
            **({} if wish is None else {"automountServiceAccountToken": wish}),
        }
        found = await made(world, PODS, {**pod(**spec), "metadata": {"generateName": "p-"}})
        assert ("volumes" in found["spec"]) is mounted, (account, wish)
        assert ("volumeMounts" in found["spec"]["containers"][0]) is mounted, (account, wish)


async def test_a_mount_of_the_pods_own(world: worlds.World) -> None:
    own = {"name": "mine", "mountPath": MOUNT}
    containers = [{"name": "c", "image": "i", "volumeMounts": [own]}]
    document = pod(volumes=[{"name": "mine", "emptyDir": {}}])
    document["spec"]["containers"] = containers
    found = (await made(world, PODS, document))["spec"]
    assert [volume["name"] for volume in found["volumes"]] == ["mine"]
    assert found["containers"][0]["volumeMounts"] == [own]


async def test_pull_secrets(world: worlds.World) -> None:
    await made(world, ACCOUNTS, {"metadata": {"name": "puller"}, "imagePullSecrets": [{"name": "a"}, {"name": "b"}]})
    found = await made(world, PODS, pod(serviceAccountName="puller"))
    assert found["spec"]["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    own = await made(world, PODS, pod("q", serviceAccountName="puller", imagePullSecrets=[{"name": "mine"}]))
    assert own["spec"]["imagePullSecrets"] == [{"name": "mine"}]


async def test_secrets_that_an_account_does_not_list(world: worlds.World) -> None:
    enforced = {"kubernetes.io/enforce-mountable-secrets": "true"}
    account = {"metadata": {"name": "strict", "annotations": enforced}, "secrets": [{"name": "listed"}]}
    await made(world, ACCOUNTS, account)

    def mounting(secret: str) -> dict[str, Any]:
        return pod(serviceAccountName="strict", volumes=[{"name": "s", "secret": {"secretName": secret}}])

    why = "is not allowed because service account strict does not reference that secret"
    await refused(world, mounting("other"), f'volume with secret.secretName="other" {why}')
    await made(world, PODS, mounting("listed"))


async def test_a_mirror_pod_gets_nothing(world: worlds.World) -> None:
    mirror = {"annotations": {"kubernetes.io/config.mirror": "hash"}}
    found = await made(world, PODS, pod(metadata=mirror, nodeName="n"))
    assert {"serviceAccountName", "volumes"}.isdisjoint(found["spec"])
    rows: tuple[tuple[dict[str, Any], str], ...] = (
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "s", "secret": {"secretName": "s"}}]}, "a mirror pod may not reference secrets"),
    )
    for spec, says in rows:
        await refused(world, pod("q", metadata=mirror, nodeName="n", **spec), says)


async def test_an_account_is_not_changed_later(world: worlds.World) -> None:
    await made(world, ACCOUNTS, {"metadata": {"name": "other"}})
    stored = await made(world, PODS, pod())
    stored["spec"]["serviceAccountName"] = stored["spec"]["serviceAccount"] = "other"
    answer = await world.request("PUT", f"{PODS}/p", stored)
    assert (answer.status, answer.reason) == (422, "Invalid"), answer.body
