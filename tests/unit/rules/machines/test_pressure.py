# SPDX-License-Identifier: Apache-2.0
"""The flood guard's count and limit, with the case names of the real product's tests."""

from __future__ import annotations

import datetime

import pytest

from handfast.api import signer_names, signing_requests
from handfast.rules.machines import bootstrapper, ownership, pressure

NOW = datetime.datetime(2020, 11, 19, tzinfo=datetime.UTC)
CLIENT, SERVING = signer_names.KUBELET_CLIENT, signer_names.KUBELET_SERVING
GROUPS = [*bootstrapper.GROUPS, "system:authenticated"]


def seconds(number: float) -> datetime.timedelta:
    return datetime.timedelta(seconds=number)


def request(
    *conditions: str, signer: str = CLIENT, user: str = bootstrapper.USER, groups: list[str] | None = None
) -> signing_requests.Request:
    rows = [signing_requests.condition(kind, "r", "m", "") for kind in conditions]
    spec = signing_requests.Spec(signer_name=signer, username=user, groups=GROUPS if groups is None else groups)
    return signing_requests.Request(signing_requests.Meta(name="x"), spec, signing_requests.Status(rows))


def counted(*rows: tuple[signing_requests.Request, float]) -> int:
    """How many of requests of different nodes count that were created so many seconds from now."""
    pending = pressure.Pending()
    for number, (item, ahead) in enumerate(rows):
        if ownership.waits(item, (bootstrapper.NODE_BOOTSTRAPPER,)):
            pending.put(f"r{number}", f"n{number}", item.spec.signer_name, NOW + seconds(ahead))
    return pending.count(NOW)


BOOTSTRAPPER = request()
SERVES = request(signer=SERVING, user="system:node:a", groups=["system:nodes", "system:authenticated"])
NO_USER = request(user="")
APPROVED = request("Approved")
MULTUS = request(signer="kubernetes.io/kube-apiserver-client", user="system:node:a")
NO_GROUPS = request(signer=SERVING, user="system:node:a", groups=[])


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        pytest.param([(BOOTSTRAPPER, 1)], 1, id="recently pending node bootstrapper csr"),
        pytest.param([(SERVES, 1)], 1, id="recently pending node server csr"),
        pytest.param([(NO_USER, 1)], 0, id="client-signer csr without username"),
        pytest.param([(APPROVED, 1)], 0, id="approved"),
        pytest.param([(BOOTSTRAPPER, -3600)], 0, id="created exactly an hour ago"),
        pytest.param([(BOOTSTRAPPER, 10)], 0, id="created exactly ten seconds ahead"),
        pytest.param([(MULTUS, 1)], 0, id="multus csr"),
        pytest.param([(MULTUS, 1), (NO_USER, 1), (NO_GROUPS, 1)], 0, id="unrelated trio"),
        pytest.param(
            [
                (BOOTSTRAPPER, 1),
                (SERVES, 1),
                (NO_USER, 1),
                (APPROVED, 1),
                (BOOTSTRAPPER, -3600),
                (BOOTSTRAPPER, 10),
                (MULTUS, 1),
                (NO_GROUPS, 1),
                (BOOTSTRAPPER, -3599),
            ],
            3,
            id="mixed list of nine",
        ),
        pytest.param([(request("Denied"), 1), (request("Failed"), 1)], 0, id="denied and failed ones do not count"),
    ],
)
def test_recently_pending(rows, count):
    assert counted(*rows) == count


@pytest.mark.parametrize(("machines", "nodes", "limit"), [(3, 2, 103), (3, 4, 104)])
def test_get_max_pending(machines, nodes, limit):
    assert pressure.limit(machines, nodes) == limit


def test_a_node_counts_once_for_each_signer():
    pending = pressure.Pending()
    for number in range(50):
        pending.put(f"a{number}", "w1", CLIENT, NOW)
    pending.put("s", "w1", SERVING, NOW)
    pending.put("b", "w2", CLIENT, NOW)
    assert pending.count(NOW) == 3
    for number in range(49):
        pending.remove(f"a{number}")
    assert pending.count(NOW) == 3
    pending.remove("a49")
    assert pending.count(NOW) == 2


def test_a_request_counts_for_an_hour_and_one_from_the_future_later():
    pending = pressure.Pending()
    pending.put("now", "w1", CLIENT, NOW)
    pending.put("now", "w9", CLIENT, NOW)
    pending.put("ahead", "w2", CLIENT, NOW + seconds(20))
    assert pending.next_end() is None
    pending.count(NOW)
    assert pending.next_end() == NOW + seconds(3600)
    assert [pending.count(NOW + seconds(at)) for at in (0, 10, 11, 3599, 3600, 3620)] == [1, 1, 2, 2, 1, 0]


def test_who_is_gone_before_its_time_is_not_counted_later():
    pending = pressure.Pending()
    pending.put("ahead", "w1", CLIENT, NOW + seconds(60))
    pending.put("now", "w2", CLIENT, NOW)
    assert pending.count(NOW) == 1
    for name in ("ahead", "now", "never"):
        pending.remove(name)
    assert pending.count(NOW + seconds(60)) == pending.count(NOW + seconds(7200)) == 0
