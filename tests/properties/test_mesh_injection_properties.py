# SPDX-License-Identifier: Apache-2.0
"""Whatever a manifest looks like: putting back what was injected gives the same one, and injecting twice is injecting once."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from handfast.cli import manifest_text
from handfast.rules.mesh import manifests, settings, sidecar

NAMES = st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True)
KEYS = st.sampled_from(["a", "b/c", "linkerd.io/created-by", "linkerd.io/workload-ns", "x~1y", "linkerd.io/identity"])
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=12) | st.sampled_from(
    ["y", "1e3", "010", "", "null", "a\nb\n", "~", "=", "<<", "0o17"]
)
VARIABLES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["A", "LINKERD2_PROXY_POD_NAMESPACE", "LINKERD2_PROXY_TLS_CERT"]), "value": TEXTS}
    ),
    max_size=4,
)


def maybe(strategy: st.SearchStrategy[Any], key: str) -> st.SearchStrategy[dict[str, Any]]:
    """The key with a value, with null, or not at all."""
    return st.just({}) | st.just({key: None}) | strategy.map(lambda value: {key: value})


def containers(least: int) -> st.SearchStrategy[list[dict[str, Any]]]:
    row = st.tuples(NAMES, maybe(VARIABLES, "env")).map(lambda pair: {"name": pair[0], **pair[1]})
    return st.lists(row, min_size=least, max_size=3, unique_by=lambda each: each["name"])


def merged(*parts: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(*parts).map(lambda rows: {key: value for row in rows for key, value in row.items()})


ANNOTATIONS = st.dictionaries(KEYS, TEXTS, max_size=3).map(
    lambda rows: {key: "disabled" if key == "linkerd.io/identity" else value for key, value in rows.items()}
)
METADATA = merged(maybe(ANNOTATIONS, "annotations"), maybe(st.dictionaries(KEYS, TEXTS, max_size=3), "labels"))
SPEC = merged(
    containers(1).map(lambda rows: {"containers": rows}),
    maybe(containers(0), "initContainers"),
    maybe(st.lists(NAMES.map(lambda name: {"name": name}), max_size=2, unique_by=str), "volumes"),
)
TEMPLATES = merged(maybe(METADATA, "metadata"), SPEC.map(lambda spec: {"spec": spec}))


def shaped(kind: str, template: dict[str, Any]) -> dict[str, Any]:
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, **template}
    if kind == "CronJob":
        return {"apiVersion": "batch/v1", "kind": kind, "spec": {"jobTemplate": {"spec": {"template": template}}}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": {"template": template}}


DOCUMENTS = st.builds(shaped, st.sampled_from(["Pod", "Deployment", "CronJob"]), TEMPLATES)
PLANS = st.builds(
    lambda *, enabled: sidecar.Plan(
        settings=settings.Settings(default_enabled=enabled), anchors="PEM\n", created_by="handfast/cli 1"
    ),
    enabled=st.booleans(),
)


@given(DOCUMENTS, PLANS)
def test_putting_back_what_was_injected_gives_the_same_manifest(document, plan):
    injected, _ = manifests.rewrite(document, manifests.injecting(plan))
    assert injected != document
    assert manifests.rewrite(injected, manifests.uninjecting)[0] == document


@given(DOCUMENTS, PLANS, PLANS)
def test_injecting_twice_is_injecting_once(document, first, second):
    once, _ = manifests.rewrite(document, manifests.injecting(second))
    twice, _ = manifests.rewrite(
        manifests.rewrite(document, manifests.injecting(first))[0], manifests.injecting(second)
    )
    assert twice == once


@given(DOCUMENTS, PLANS)
def test_what_is_printed_is_read_as_the_same(document, plan):
    injected, _ = manifests.rewrite(document, manifests.injecting(plan))
    text = manifest_text.dump(injected)
    [part] = manifests.read(text.encode())
    assert json.dumps(part.value, sort_keys=True) == json.dumps(injected, sort_keys=True)
