# SPDX-License-Identifier: Apache-2.0
"""RBAC over real TLS: what roles allow, what is refused in which words, and who may give what away.

Proves: a rule allows what it says and nothing beside it; a change counts from the next request on; nobody makes a role
or binding with more than they hold; and an update or apply that makes a new object needs `create`.
"""

from __future__ import annotations

import pathlib
import ssl
from typing import Any, ClassVar

import pytest

from handfast.assembly import controllers
from handfast.runtime import tasks
from tests.scenarios import controlled as c
from tests.scenarios import refusals
from tests.scenarios.granting import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    GROUP,
    PODS,
    ROLES,
    SECRETS,
    applied,
    binding,
    codes,
    grant,
    group,
    made,
    paths,
    refused,
    rule,
    user,
)
from tests.world import world as worlds

pytestmark = pytest.mark.usefixtures("quiet")


class TestRules:
    async def test_verbs_and_namespaces(self, world: worlds.World) -> None:
        await world.create_config_map("a")
        await grant(world, "jane", rule("get list", "configmaps"))
        jane = world.context_for("jane")
        await codes(
            world,
            jane,
            ("GET", CONFIG_MAPS, 200),
            ("GET", f"{CONFIG_MAPS}/a", 200),
            ("GET", f"{CONFIG_MAPS}?watch=1", 403),
            ("POST", CONFIG_MAPS, 403, {"metadata": {"name": "b"}}),
            ("PUT", f"{CONFIG_MAPS}/a", 403, {"metadata": {"name": "a"}}),
            ("DELETE", f"{CONFIG_MAPS}/a", 403),
            ("DELETE", CONFIG_MAPS, 403),
            ("GET", "/api/v1/namespaces/kube-system/configmaps", 403),
            ("GET", "/api/v1/configmaps", 403),
            ("GET", SECRETS, 403),
        )

    async def test_a_rule_for_a_name_opens_that_object_alone(self, world: worlds.World) -> None:
        for name in ("mine", "other"):
            await world.create_config_map(name)
        await grant(world, "jane", rule("*", "configmaps", "mine"))
        jane = world.context_for("jane")
        await codes(
            world,
            jane,
            ("GET", f"{CONFIG_MAPS}/mine", 200),
            ("PUT", f"{CONFIG_MAPS}/mine", 200, {"metadata": {"name": "mine"}, "data": {"k": "v"}}),
            ("GET", f"{CONFIG_MAPS}/other", 403),
            ("GET", CONFIG_MAPS, 403),
            ("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dmine", 200),
            ("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Dother", 403),
            ("GET", f"{CONFIG_MAPS}?fieldSelector=metadata.name%21%3Dmine", 403),
            # A new object has no name when this is decided.
            ("POST", CONFIG_MAPS, 403, {"metadata": {"name": "mine"}}),
            ("DELETE", CONFIG_MAPS, 403),
            ("DELETE", f"{CONFIG_MAPS}/other", 403),
            ("DELETE", f"{CONFIG_MAPS}/mine", 200),
        )
        assert (await world.get(f"{CONFIG_MAPS}/other")).status == 200

    async def test_a_subresource_needs_a_rule_of_its_own(self, world: worlds.World) -> None:
        await made(world, PODS, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
        scaled = {
            "metadata": {"name": "d"},
            "spec": {
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                },
            },
        }
        deployments = "/apis/apps/v1/namespaces/default/deployments"
        await made(world, deployments, scaled)
        await grant(world, "jane", rule("*", "pods"), {"verbs": ["get"], "apiGroups": ["*"], "resources": ["*/scale"]})
        await grant(world, "joe", rule("get update", "pods/status"))
        await codes(
            world,
            world.context_for("jane"),
            ("GET", f"{PODS}/p", 200),
            ("GET", f"{PODS}/p/status", 403),
            ("POST", f"{PODS}/p/eviction", 403, {"metadata": {"name": "p"}}),
            ("POST", f"{PODS}/p/binding", 403, {"target": {"name": "n"}}),
            ("GET", f"{deployments}/d/scale", 200),
            ("GET", f"{deployments}/d", 403),
        )
        await codes(
            world,
            world.context_for("joe"),
            ("GET", f"{PODS}/p/status", 200),
            ("GET", f"{PODS}/p", 403),
            ("DELETE", f"{PODS}/p", 403),
        )

    async def test_paths_need_a_cluster_role_bound_in_the_cluster(self, world: worlds.World) -> None:
        await grant(world, "jane", paths("get", "/metrics", "/openapi/*"), space="")
        # A binding in a namespace gives no paths, whatever the role says.
        await made(world, BINDINGS, binding("joe", "ClusterRole", "jane", user("joe")))
        # What everybody who has logged in may read is taken away, so that it does not answer for the rule.
        assert (await world.request("DELETE", f"{CLUSTER_BINDINGS}/system:discovery")).status == 200
        await codes(
            world,
            world.context_for("jane"),
            ("GET", "/metrics", 200),
            ("HEAD", "/metrics", 403),
            ("GET", "/openapi/v2", 200),
            ("GET", "/openapi", 403),
            ("GET", "/api", 403),
        )
        joe = world.context_for("joe")
        answer = await world.get("/metrics", context=joe)
        assert (answer.status, answer.message) == (403, 'forbidden: User "joe" cannot get path "/metrics"')

    async def test_subjects_and_where_a_cluster_role_counts(self, world: worlds.World) -> None:
        await made(
            world, CLUSTER_ROLES, {"metadata": {"name": "reader"}, "rules": [rule("list", "configmaps", group="")]}
        )
        await made(world, BINDINGS, binding("here", "ClusterRole", "reader", group("team"), user("jane")))
        await made(world, CLUSTER_BINDINGS, binding("everywhere", "ClusterRole", "reader", group("auditors")))
        elsewhere = "/api/v1/namespaces/kube-system/configmaps"
        for name, organizations, expected in (
            ("jane", (), (200, 403, 403)),
            ("joe", ("team",), (200, 403, 403)),
            ("jim", ("auditors",), (200, 200, 200)),
            # A user called like a group is not in it, nor the other way round.
            ("team", ("jane",), (403, 403, 403)),
            ("Jane", ("Team",), (403, 403, 403)),
        ):
            context = world.context_for(name, *organizations)
            places = (CONFIG_MAPS, elsewhere, "/api/v1/configmaps")
            found = tuple([(await world.get(path, context=context)).status for path in places])
            assert found == expected, name

    async def test_a_service_account(self, world: worlds.World) -> None:
        await grant(world, "nobody", rule("list", "configmaps"))
        account = {"kind": "ServiceAccount", "name": "default", "namespace": "default"}
        await made(world, BINDINGS, binding("account", "Role", "nobody", account))
        token = await made(world, "/api/v1/namespaces/default/serviceaccounts/default/token", {"spec": {}})
        headers = {"Authorization": f"Bearer {token['status']['token']}"}
        stranger = world.anonymous_context()
        assert (await world.get(CONFIG_MAPS, context=stranger, headers=headers)).status == 200
        answer = await world.get(SECRETS, context=stranger, headers=headers)
        assert answer.message == (
            'secrets is forbidden: User "system:serviceaccount:default:default" cannot list resource "secrets" '
            'in API group "" in the namespace "default"'
        )

    async def test_changes_count_from_the_next_request_on(self, world: worlds.World) -> None:
        jane = world.context_for("jane")
        await codes(world, jane, ("GET", CONFIG_MAPS, 403))
        await grant(world, "jane", rule("list", "configmaps"))
        await codes(world, jane, ("GET", CONFIG_MAPS, 200), ("GET", SECRETS, 403))
        role = {"metadata": {"name": "jane"}, "rules": [rule("list", "secrets")]}
        assert (await world.request("PUT", f"{ROLES}/jane", role)).status == 200
        await codes(world, jane, ("GET", CONFIG_MAPS, 403), ("GET", SECRETS, 200))
        assert (await world.request("DELETE", f"{ROLES}/jane")).status == 200
        answer = await world.get(SECRETS, context=jane)
        assert answer.status == 403
        assert answer.message == (
            'secrets is forbidden: User "jane" cannot list resource "secrets" in API group "" in the namespace '
            '"default": RBAC: role.rbac.authorization.k8s.io "jane" not found'
        )
        await made(world, ROLES, role)
        await codes(world, jane, ("GET", SECRETS, 200))
        assert (await world.request("DELETE", f"{BINDINGS}/jane")).status == 200
        await codes(world, jane, ("GET", SECRETS, 403))

    async def test_aggregated_roles(self, tmp_path: pathlib.Path) -> None:
        name = "clusterrole-aggregation-controller"
        async with worlds.world(tmp_path / "d") as world, c.connected(world) as client:
            story = c.Story(client, world.movable())
            selector = {"matchLabels": {"example.com/to-jane": "true"}}
            gathers = {"metadata": {"name": "jane"}, "aggregationRule": {"clusterRoleSelectors": [selector]}}
            await made(world, CLUSTER_ROLES, gathers)
            await made(world, CLUSTER_BINDINGS, binding("jane", "ClusterRole", "jane", user("jane")))
            jane = world.context_for("jane")

            async def is_open() -> bool:
                return (await world.get(CONFIG_MAPS, context=jane)).status == 200

            async def is_closed() -> bool:
                return not await is_open()

            async with tasks.Group("controllers") as running:
                c.started(running, client, world.clock, controllers.known(c.CA_PEM)[name])
                assert await is_closed()
                part = {
                    "metadata": {"name": "part", "labels": {"example.com/to-jane": "true"}},
                    "rules": [rule("list", "configmaps")],
                }
                await made(world, CLUSTER_ROLES, part)
                await story.eventually(is_open, "the part's rule gathered")
                # The default roles gather as well: who may edit, may do what is labelled for them.
                labelled = {"metadata": {"name": "more", "labels": {f"{GROUP}/aggregate-to-view": "true"}}}
                await made(world, CLUSTER_ROLES, {**labelled, "rules": [rule("list", "frobs", group="example.com")]})

                async def gathered() -> bool:
                    view = (await world.get(f"{CLUSTER_ROLES}/view")).json()
                    return any("frobs" in row.get("resources", []) for row in view["rules"])

                await story.eventually(gathered, "view gathered")
                assert (await world.request("DELETE", f"{CLUSTER_ROLES}/part")).status == 200
                await story.eventually(is_closed, "the part's rule gone")


# Method, path, and what is said before and after `User "jane" cannot`.
REFUSALS = (
    ("GET", CONFIG_MAPS, "configmaps is", 'list resource "configmaps" in API group "" in the namespace "default"'),
    ("GET", f"{CONFIG_MAPS}/a", 'configmaps "a" is', 'get resource "configmaps" in API group "" in the namespace "default"'),
    ("GET", "/api/v1/nodes?watch=1", "nodes is", 'watch resource "nodes" in API group "" at the cluster scope'),
    ("DELETE", CONFIG_MAPS, "configmaps is",
        'deletecollection resource "configmaps" in API group "" in the namespace "default"'),
    ("POST", CLUSTER_ROLES, f"clusterroles.{GROUP} is",
        f'create resource "clusterroles" in API group "{GROUP}" at the cluster scope'),
    ("PUT", f"{PODS}/p/status", 'pods "p" is',
        'update resource "pods/status" in API group "" in the namespace "default"'),
    ("GET", "/apis/frob.example.com/v1/frobs", "frobs.frob.example.com is",
        'list resource "frobs" in API group "frob.example.com" at the cluster scope'),
    ("GET", "/metrics", "", 'get path "/metrics"'),
    ("POST", "/version", "", 'post path "/version"'),
)  # fmt: skip


async def test_the_words_of_a_refusal(world: worlds.World) -> None:
    jane = world.context_for("jane")
    for method, path, before, after in REFUSALS:
        message = f'{before} forbidden: User "jane" cannot {after}'.lstrip()
        answer = await world.request(method, path, {} if method in {"POST", "PUT"} else None, context=jane)
        found = answer.json()
        assert found["message"] == message
        assert (answer.status, found["kind"], found["reason"], found["code"]) == (403, "Status", "Forbidden", 403)


class TestEscalation:
    """Mallory may write roles and bindings, and holds `get pods`."""

    RBAC_WRITER: ClassVar = rule(
        "create update patch get", "roles rolebindings clusterroles clusterrolebindings", group=GROUP
    )
    HELD: ClassVar = {"metadata": {"name": "held"}, "rules": [rule("get", "pods")]}
    MORE: ClassVar = {"metadata": {"name": "more"}, "rules": [rule("get", "pods"), rule("get list", "secrets")]}
    NOT_HELD = (
        'user "mallory" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}'
    )

    @pytest.fixture
    async def mallory(self, world: worlds.World) -> ssl.SSLContext:
        await grant(world, "mallory", self.RBAC_WRITER, rule("get", "pods"), space="")
        return world.context_for("mallory")

    async def test_a_role_gives_no_more_than_its_writer_holds(
        self, world: worlds.World, mallory: ssl.SSLContext
    ) -> None:
        for path in (ROLES, CLUSTER_ROLES):
            await codes(world, mallory, ("POST", path, 201, self.HELD))
            await refused(world, mallory, "POST", path, self.MORE, 403, self.NOT_HELD)
            changed = {**self.HELD, "rules": self.MORE["rules"]}
            await refused(world, mallory, "PUT", f"{path}/held", changed, 403, self.NOT_HELD)
            merge = {"headers": {"Content-Type": refusals.MERGE}}
            await refused(world, mallory, "PATCH", f"{path}/held", changed, 403, self.NOT_HELD, **merge)
            await refused(world, mallory, "PUT", f"{path}/fresh", {"rules": changed["rules"]}, 403, self.NOT_HELD)
            kind = "Role" if path == ROLES else "ClusterRole"
            document = applied(kind, f"{GROUP}/v1", "fresh", rules=changed["rules"])
            options: dict[str, Any] = {"headers": {"Content-Type": refusals.APPLY}}
            await refused(
                world, mallory, "PATCH", f"{path}/fresh?fieldManager=m", document, 403, self.NOT_HELD, **options
            )
            answer = await world.request("POST", path, self.MORE, context=mallory)
            assert answer.message.startswith(f'{kind.lower()}s.rbac.authorization.k8s.io "more" is forbidden: user ')

    async def test_escalate_lets_one_role_give_more_than_its_writer_holds(
        self, world: worlds.World, mallory: ssl.SSLContext
    ) -> None:
        await grant(world, "escalating", rule("escalate", "roles", "more", group=GROUP))
        await made(world, BINDINGS, binding("escalating-2", "Role", "escalating", user("mallory")))
        await made(world, ROLES, {"metadata": {"name": "more"}})
        await made(world, ROLES, {"metadata": {"name": "less"}})
        await codes(world, mallory, ("PUT", f"{ROLES}/more", 200, self.MORE))
        other = {**self.MORE, "metadata": {"name": "less"}}
        await refused(world, mallory, "PUT", f"{ROLES}/less", other, 403, self.NOT_HELD)
        await made(world, CLUSTER_ROLES, {"metadata": {"name": "more"}})
        await refused(world, mallory, "PUT", f"{CLUSTER_ROLES}/more", self.MORE, 403, self.NOT_HELD)

    async def test_a_binding_gives_no_more_than_its_writer_holds(
        self, world: worlds.World, mallory: ssl.SSLContext
    ) -> None:
        me = user("mallory")
        await made(world, ROLES, self.HELD)
        await made(world, ROLES, self.MORE)
        await codes(world, mallory, ("POST", BINDINGS, 201, binding("held", "Role", "held", me)))
        for path, kind, role in (
            (BINDINGS, "Role", "more"),
            (BINDINGS, "ClusterRole", "cluster-admin"),
            (CLUSTER_BINDINGS, "ClusterRole", "cluster-admin"),
            (CLUSTER_BINDINGS, "ClusterRole", "view"),
        ):
            wanted = binding("b", kind, role, me)
            await refused(world, mallory, "POST", path, wanted, 403, "permissions not currently held")
            await refused(world, mallory, "PUT", f"{path}/b", wanted, 403, "permissions not currently held")
        # An existing binding is as good as a new one: adding oneself to it is refused too.
        await made(world, BINDINGS, binding("theirs", "Role", "more", user("jane")))
        theirs = binding("theirs", "Role", "more", user("jane"), me)
        await refused(world, mallory, "PUT", f"{BINDINGS}/theirs", theirs, 403, self.NOT_HELD)
        await codes(world, mallory, ("GET", SECRETS, 403))

    async def test_bind_lets_one_role_be_bound_that_its_writer_does_not_hold(
        self, world: worlds.World, mallory: ssl.SSLContext
    ) -> None:
        await made(
            world,
            CLUSTER_ROLES,
            {"metadata": {"name": "binding"}, "rules": [rule("bind", "clusterroles", "view", group=GROUP)]},
        )
        await made(world, CLUSTER_BINDINGS, binding("binding", "ClusterRole", "binding", user("mallory")))
        await codes(world, mallory, ("POST", BINDINGS, 201, binding("v", "ClusterRole", "view", user("mallory"))))
        edit = binding("e", "ClusterRole", "edit", user("mallory"))
        await refused(world, mallory, "POST", BINDINGS, edit, 403, "permissions not currently held")
        await codes(world, mallory, ("GET", CONFIG_MAPS, 200), ("POST", CONFIG_MAPS, 403, {"metadata": {"name": "a"}}))

    async def test_only_an_administrator_binds_a_role_that_is_missing(
        self, world: worlds.World, mallory: ssl.SSLContext
    ) -> None:
        for kind, plural in (("Role", "roles"), ("ClusterRole", "clusterroles")):
            wanted = binding("b", kind, "absent", user("mallory"))
            text = f'{plural}.rbac.authorization.k8s.io "absent" not found'
            await refused(world, mallory, "POST", BINDINGS, wanted, 404, text)
        # An administrator may bind first and write the role later.
        await made(world, BINDINGS, binding("b", "Role", "absent", user("jane")))

    async def test_only_who_may_do_everything_writes_an_aggregation_rule(
        self, world: worlds.World, mallory: ssl.SSLContext
    ) -> None:
        selector = {"clusterRoleSelectors": [{"matchLabels": {"x": "y"}}]}
        gathers = {"metadata": {"name": "all"}, "aggregationRule": selector}
        needs = "must have cluster-admin privileges to use the aggregationRule"
        await refused(world, mallory, "POST", CLUSTER_ROLES, gathers, 403, needs)
        await codes(world, mallory, ("POST", CLUSTER_ROLES, 201, self.HELD))
        changed = {**self.HELD, "aggregationRule": selector}
        await refused(world, mallory, "PUT", f"{CLUSTER_ROLES}/held", changed, 403, needs)
        await made(world, CLUSTER_ROLES, gathers)
        emptied = {"metadata": {"name": "all"}, "rules": []}
        await refused(world, mallory, "PUT", f"{CLUSTER_ROLES}/all", emptied, 403, needs)
        # Somebody with everything in the role's own words, and not of system:masters.
        await made(world, CLUSTER_BINDINGS, binding("mighty", "ClusterRole", "cluster-admin", user("mighty")))
        await codes(world, world.context_for("mighty"), ("PUT", f"{CLUSTER_ROLES}/all", 200, emptied))

    async def test_the_role_of_a_binding_stays(self, world: worlds.World, mallory: ssl.SSLContext) -> None:
        await made(world, ROLES, self.HELD)
        await codes(world, mallory, ("POST", BINDINGS, 201, binding("b", "Role", "held", user("jane"))))
        for context in (mallory, world.admin_context()):
            for role in ("other", "more"):
                wanted = binding("b", "Role", role, user("jane"))
                await refused(world, context, "PUT", f"{BINDINGS}/b", wanted, 422, "cannot change roleRef")


# Every kind that a PUT creates, and some that only an apply does: path, kind, apiVersion, the rest of the document.
CREATED_BY_UPDATE: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", "Lease", "coordination.k8s.io/v1", {}),
    (ROLES, "Role", f"{GROUP}/v1", {"rules": []}),
    (CLUSTER_ROLES, "ClusterRole", f"{GROUP}/v1", {"rules": []}),
    (BINDINGS, "RoleBinding", f"{GROUP}/v1", {"roleRef": {"apiGroup": GROUP, "kind": "Role", "name": "r"}}),
    (CLUSTER_BINDINGS, "ClusterRoleBinding", f"{GROUP}/v1",
        {"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"}}),
    ("/api/v1/namespaces/default/endpoints", "Endpoints", "v1", {}),
    ("/api/v1/namespaces/default/events", "Event", "v1", {"involvedObject": {"namespace": "default"}}),
    ("/apis/node.k8s.io/v1/runtimeclasses", "RuntimeClass", "node.k8s.io/v1", {"handler": "h"}),
    ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "EndpointSlice", "discovery.k8s.io/v1",
        {"addressType": "IPv4", "endpoints": []}),
)  # fmt: skip
CREATED_BY_APPLY: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    *CREATED_BY_UPDATE,
    (CONFIG_MAPS, "ConfigMap", "v1", {"data": {"k": "v"}}),
    (SECRETS, "Secret", "v1", {}),
    ("/api/v1/nodes", "Node", "v1", {}),
)


class TestCreatingByAnotherName:
    """`all verbs but create` does not create."""

    @pytest.fixture
    async def jane(self, world: worlds.World) -> ssl.SSLContext:
        verbs = ["get", "list", "watch", "update", "patch", "delete", "deletecollection", "bind", "escalate"]
        await grant(world, "jane", {"verbs": verbs, "apiGroups": ["*"], "resources": ["*"]}, space="")
        return world.context_for("jane")

    async def test_an_update_that_creates_needs_the_right_to_create(
        self, world: worlds.World, jane: ssl.SSLContext
    ) -> None:
        await made(world, ROLES, {"metadata": {"name": "r"}})
        for row in CREATED_BY_UPDATE:
            await self._update(world, jane, *row)

    async def _update(
        self, world: worlds.World, jane: ssl.SSLContext, path: str, kind: str, api_version: str, rest: dict[str, Any]
    ) -> None:
        document = applied(kind, api_version, "new", **rest)
        says = f'User "jane" cannot create resource "{path.rpartition("/")[2]}"'
        await refused(world, jane, "PUT", f"{path}/new", document, 403, says)
        await refused(world, jane, "PUT", f"{path}/new?dryRun=All", document, 403, says)
        assert (await world.get(f"{path}/new")).status == 404
        # The same request is fine once the object is there, and for somebody who may create.
        answer = await world.request("PUT", f"{path}/new", document)
        assert answer.status == 201, answer.body
        await codes(world, jane, ("PUT", f"{path}/new", 200, document))

    async def test_an_apply_that_creates_needs_the_right_to_create(
        self, world: worlds.World, jane: ssl.SSLContext
    ) -> None:
        await made(world, ROLES, {"metadata": {"name": "r"}})
        for row in CREATED_BY_APPLY:
            await self._apply(world, jane, *row)

    async def _apply(
        self, world: worlds.World, jane: ssl.SSLContext, path: str, kind: str, api_version: str, rest: dict[str, Any]
    ) -> None:
        document = applied(kind, api_version, "new", **rest)
        url = f"{path}/new?fieldManager=m"
        says = f'User "jane" cannot create resource "{path.rpartition("/")[2]}"'
        media = {"Content-Type": refusals.APPLY}
        await refused(world, jane, "PATCH", url, document, 403, says, headers=media)
        assert (await world.get(f"{path}/new")).status == 404
        answer = await world.request("PATCH", url, document, headers=media)
        assert answer.status == 201, answer.body
        assert (await world.request("PATCH", url, document, headers=media, context=jane)).status == 200

    async def test_what_an_update_does_not_create_is_not_found(self, world: worlds.World, jane: ssl.SSLContext) -> None:
        await codes(world, jane, ("PUT", f"{CONFIG_MAPS}/new", 404, {"metadata": {"name": "new"}}))

    async def test_create_for_one_name_does_not_create(self, world: worlds.World, jane: ssl.SSLContext) -> None:
        # As in Kubernetes: a create has no name to compare, so a rule with names never allows one.
        await made(world, ROLES, {"metadata": {"name": "named"}, "rules": [rule("create", "configmaps", "new")]})
        await made(world, BINDINGS, binding("named", "Role", "named", user("jane")))
        document = applied("ConfigMap", "v1", "new")
        url, media = f"{CONFIG_MAPS}/new?fieldManager=m", {"Content-Type": refusals.APPLY}
        await refused(world, jane, "PATCH", url, document, 403, "cannot create", headers=media)
