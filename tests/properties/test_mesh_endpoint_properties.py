# SPDX-License-Identifier: Apache-2.0
"""Whatever is in the slices, and whoever wrote them: an address of a meshed Pod is handed out with its identity, or not at all."""

from __future__ import annotations

import ipaddress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from handfast.rules.mesh import authorities, endpoints, views
from handfast.rules.mesh import names as names_module
from tests.unit.rules.mesh import mesh_pods
from tests.unit.rules.mesh.test_endpoints import Known

HOSTS = ("10.0.0.1", "10.0.0.2", "2001:db8::1")
# Other ways to write them.
SPELLINGS = {
    "10.0.0.1": ("10.0.0.1", "::ffff:10.0.0.1", "::ffff:a00:1"),
    "10.0.0.2": ("10.0.0.2", "::FFFF:10.0.0.2"),
    "2001:db8::1": ("2001:db8::1", "2001:DB8:0:0::1", "2001:0db8::0001"),
}
NAMESPACES = ("shop", "evil")
# By itself, so that it does not err as the rule might.
MEANT = {ipaddress.ip_address(text): host for host, texts in SPELLINGS.items() for text in texts}


def meant(text: str) -> str:
    return MEANT[ipaddress.ip_address(text)]


def broken(document: dict[str, Any]) -> dict[str, Any]:
    document["metadata"]["annotations"]["linkerd.io/identity"] = "disabled"
    return document


@st.composite
def pods(draw: st.DrawFn) -> list[tuple[str, dict[str, Any]]]:
    rows = []
    for number in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["meshed", "plain", "broken"]))
        make = mesh_pods.plain if kind == "plain" else mesh_pods.meshed
        host = draw(st.sampled_from([each for row in SPELLINGS.values() for each in row]))
        document = make(draw(st.sampled_from(NAMESPACES)), f"p{number}", host, account=f"a{number}")
        rows.append((kind, broken(document) if kind == "broken" else document))
    return rows


@st.composite
def slices(draw: st.DrawFn) -> views.Slice:
    entries = []
    for _ in range(draw(st.integers(0, 4))):
        name = f"p{draw(st.integers(0, 4))}"
        reference = {
            "kind": draw(st.sampled_from(["Pod", "Pod", "Node"])),
            "name": name,
            "namespace": draw(st.sampled_from(["", *NAMESPACES])),
            "uid": draw(st.sampled_from(["", f"uid-{name}", "other"])),
        }
        host = draw(st.sampled_from(HOSTS))
        entries.append(
            {
                "addresses": [draw(st.sampled_from(SPELLINGS[host]))],
                "targetRef": draw(st.sampled_from([None, reference])),
            }
        )
    document = {
        "metadata": {"namespace": draw(st.sampled_from(NAMESPACES)), "name": "s"},
        "addressType": draw(st.sampled_from(["IPv4", "IPv6"])),
        "endpoints": entries,
        "ports": [{"name": "http", "port": 8080}],
    }
    return msgspec.convert(document, views.Slice)


@given(pods(), st.lists(slices(), max_size=3))
def test_an_address_of_a_meshed_pod_is_never_handed_out_without_its_identity(rows, items):
    known = Known(*(document for _, document in rows))
    everybody = [mesh_pods.view(document) for _, document in rows]
    kinds = {document["metadata"]["name"]: kind for kind, document in rows}
    service = msgspec.convert({"spec": {"ports": [{"name": "http", "port": 80}]}}, views.Service)
    wanted = authorities.Service("shop", "web", 80)
    for row in endpoints.candidates(service, wanted, items):
        judged = endpoints.judge(row, known)
        owners = [pod for pod in everybody if meant(pod.ips[0]) == meant(row.address.host)]
        if isinstance(judged, endpoints.Withheld):
            continue
        names = {
            known.mesh.name(names_module.Account(namespace=pod.metadata.namespace, name=pod.account))
            for pod in owners
            if kinds[pod.metadata.name] == "meshed"
        }
        if judged.standing.identity:
            # A name is that of a meshed Pod that has the address.
            assert judged.standing.identity in names
        elif len(owners) == 1:
            assert kinds[owners[0].metadata.name] == "plain"
        else:
            # Of several, the slice's own Pod counts; of none, nobody has a name.
            assert not owners or any(kinds[pod.metadata.name] == "plain" for pod in owners)
