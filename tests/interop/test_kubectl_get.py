# SPDX-License-Identifier: Apache-2.0
"""kubectl get: every output form, selectors, paging, sorting, watching, and the errors people meet.

The objects are made by kubectl too; how that works is proved in `test_kubectl_create`.
"""

from __future__ import annotations

import itertools
import re

import pytest
import yaml

from tests.interop import manifests, running

pytestmark = [pytest.mark.slow, pytest.mark.kubectl]


def test_table_shows_the_columns_of_each_kind(full):
    shown = full("get", "pods,services,deployments,configmaps,secrets,serviceaccounts").out
    for header in (
        r"NAME +READY +STATUS +RESTARTS +AGE",
        r"pod/web +0/1 +Pending +0 +\d+s",
        r"NAME +TYPE +CLUSTER-IP +EXTERNAL-IP +PORT\(S\) +AGE",
        r"service/web +ClusterIP .* 80/TCP",
        r"NAME +READY +UP-TO-DATE +AVAILABLE +AGE",
        r"deployment.apps/web +0/2 +0 +0 +\d+s",
        r"configmap/settings +2 +\d+s",
        r"NAME +TYPE +DATA +AGE",
        r"secret/password +Opaque +1 +\d+s",
        r"serviceaccount/default +\d+s",
    ):
        assert re.search(header, shown), (header, shown)


def test_wide_adds_columns_and_all_is_a_category(full):
    shown = full("get", "all", "-o", "wide").out
    assert re.search(r"NAME +READY +STATUS +RESTARTS +AGE +IP +NODE +NOMINATED NODE +READINESS GATES", shown)
    assert re.search(r"deployment.apps/web .* nginx:1,busybox +app=web", shown)
    assert "configmap/" not in shown


def test_json_yaml_and_name_show_the_same_object(full):
    as_json = full.json("get", "cm", "settings")
    as_yaml = yaml.safe_load(full("get", "configmaps/settings", "-o", "yaml").out)
    assert as_json == as_yaml
    assert (as_json["apiVersion"], as_json["kind"]) == ("v1", "ConfigMap")
    assert as_json["data"] == {"colour": "green", "size": "3"}
    assert full("get", "configmap", "settings", "-o", "name").out == "configmap/settings\n"
    listed = full.json("get", "cm", "-l", "app=web")
    assert listed["kind"] == "List"
    assert listed["items"] == [as_json]


def test_jsonpath_templates_and_custom_columns(full):
    assert full("get", "cm", "settings", "-o", "jsonpath={.data.colour}").out == "green"
    every = full("get", "cm,pod", "-l", "app=web", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {end}").out
    assert every == "ConfigMap/settings Pod/web "
    columns = full("get", "pod", "web", "-o", "custom-columns=NAME:.metadata.name,IMAGE:.spec.containers[*].image")
    assert [line.split() for line in columns.lines] == [["NAME", "IMAGE"], ["web", "nginx:1"]]
    assert full("get", "cm", "settings", "-o", "go-template={{.data.size}}").out == "3"


def test_label_columns_headers_and_kinds(full):
    shown = full("get", "cm", "-L", "app", "--show-labels").out
    assert re.search(r"NAME +DATA +AGE +APP +LABELS", shown)
    assert re.search(r"settings +2 +\d+s +web +app=web", shown)
    assert re.fullmatch(
        r"configmap/settings +2 +\d+s\n", full("get", "cm", "settings", "--no-headers", "--show-kind").out
    )


def test_all_namespaces_adds_a_column(full):
    shown = full("get", "configmaps", "-A").out
    assert re.search(r"NAMESPACE +NAME +DATA +AGE", shown)
    assert re.search(rf"{full.namespace} +settings +2", shown)
    assert re.search(r"kube-system +kube-root-ca.crt +1", shown)


def test_label_and_field_selectors(full):
    assert full("get", "cm", "-l", "app=web", "-o", "name").lines == ["configmap/settings"]
    assert full("get", "cm", "-l", "app in (web,db),app!=db", "-o", "name").lines == ["configmap/settings"]
    assert full("get", "cm", "-l", "!app", "-o", "name").lines == ["configmap/kube-root-ca.crt"]
    assert full("get", "cm", "--field-selector", "metadata.name!=settings", "-o", "name").lines == [
        "configmap/kube-root-ca.crt"
    ]
    pending = full("get", "pods", "--field-selector", "status.phase=Pending,spec.nodeName=", "-o", "name")
    assert pending.lines == ["pod/web"]
    assert full("get", "secrets", "--field-selector", "type=kubernetes.io/tls").err == (
        f"No resources found in {full.namespace} namespace.\n"
    )


def test_wrong_selectors_are_refused_in_kubernetes_words(full):
    assert "field label not supported: colour" in full.fails("get", "pods", "--field-selector", "colour=red")
    known = 'is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert known in full.fails("get", "cm", "--field-selector", "colour=red")
    assert "found '=', expected: ',' or 'end of string'" in full.fails("get", "cm", "-l", "a=b=c")


def test_many_objects_in_small_chunks(kubectl):
    kubectl("create", "-f", "-", stdin=manifests.config_maps(60))
    shown = kubectl("get", "configmaps", "-l", "many", "--chunk-size=7", "-v=6")
    assert len(shown.lines) == 61
    # 60 objects are nine requests, of which all but the first continue.
    assert len(re.findall(r"[?&]continue=\w+", shown.err)) == 8
    names = kubectl("get", "configmaps", "-l", "many", "--chunk-size=7", "-o", "name").lines
    assert names == sorted(f"configmap/many-{number:03}" for number in range(60))


def test_sorting_by_a_field(full):
    by_size = full("get", "cm", "--sort-by=.data.size", "-o", "name").lines
    assert by_size[-1] == "configmap/settings"
    by_version = full("get", "pods,cm,secrets,deployments", "--sort-by=.metadata.resourceVersion", "-o", "name").lines
    assert by_version[0] == "configmap/kube-root-ca.crt"


def test_what_is_not_there(full):
    assert full.fails("get", "cm", "nothing") == 'Error from server (NotFound): configmaps "nothing" not found'
    assert full.fails("get", "deployment", "nothing") == (
        'Error from server (NotFound): deployments.apps "nothing" not found'
    )
    assert full.fails("get", "unicorns") == 'error: the server doesn\'t have a resource type "unicorns"'
    assert full.fails("get", "--raw", "/nothing") == (
        "Error from server (NotFound): the server could not find the requested resource"
    )
    assert full("get", "cm", "nothing", "--ignore-not-found").out == ""
    partly = full("get", "cm", "settings", "nothing", code=1)
    assert "settings" in partly.out
    assert 'configmaps "nothing" not found' in partly.err


def test_raw_paths(full):
    document = full("get", "--raw", f"/api/v1/namespaces/{full.namespace}/configmaps/settings").json()
    assert document["data"]["colour"] == "green"
    assert full("get", "--raw", "/readyz").out == "ok"
    assert "[+]ping ok" in full("get", "--raw", "/readyz?verbose").out


def test_names_of_kinds_in_all_their_forms(full):
    for form in ("deployments", "deployment", "deploy", "deployments.apps", "deployments.v1.apps", "Deployment"):
        assert full("get", form, "-o", "name").lines == ["deployment.apps/web"], form


def test_subresources_can_be_read(full):
    full.needs(24, "--subresource")
    assert full.json("get", "deployment", "web", "--subresource=scale")["spec"] == {"replicas": 2}
    assert full.json("get", "deployment", "web", "--subresource=status")["kind"] == "Deployment"


def test_watch_streams_a_table_of_events(full):
    with full.running("get", "configmaps", "-w", "--output-watch-events") as stream:
        stream.wait_for("EVENT +NAME +DATA +AGE", r"ADDED +settings +2")
        full("patch", "cm", "settings", "--type=merge", "-p", '{"data": {"colour": null}}')
        stream.wait_for(r"ADDED +settings", r"MODIFIED +settings +1")
        full("create", "configmap", "later")
        full("delete", "configmap", "settings")
        lines = stream.wait_for(r"MODIFIED +settings", r"ADDED +later +0", r"DELETED +settings")
    assert sum("NAME" in line for line in lines) == 1


def test_watch_with_a_selector_sees_objects_come_and_go(full):
    with full.running("get", "cm", "-l", "app=web", "-w", "--output-watch-events", "-o", "json") as stream:
        stream.wait_for('"ADDED".*"name":"settings"')
        full("label", "cm", "settings", "app=db", "--overwrite")
        stream.wait_for('"DELETED".*"name":"settings"')
        full("label", "cm", "settings", "app=web", "--overwrite")
        stream.wait_for('"DELETED".*"name":"settings"', '"ADDED".*"name":"settings"')


def test_watch_of_one_object_and_watch_only(full):
    with (
        full.running("get", "cm", "settings", "-w", "-o", "jsonpath={.data.colour} ") as one,
        full.running("get", "cm", "--watch-only", "-o", "name") as only,
    ):
        one.wait_for("green")
        # The second may not have begun yet: go on until it has.
        turns = itertools.count()

        def heard():
            full("annotate", "cm", "settings", f"turn={next(turns)}", "--overwrite")
            return only.lines()

        running.eventually(heard, "an event after the watch began")
        full("patch", "cm", "settings", "--type=merge", "-p", '{"data": {"colour": "red"}}')
        one.wait_for("green.*red")
        assert set(only.lines()) == {"configmap/settings"}
