# SPDX-License-Identifier: Apache-2.0
"""When certificates are renewed, and which no longer satisfy what is wanted; it does not test the renewing."""

from __future__ import annotations

import collections
import datetime
import itertools
import random

import pytest

from handfast import errors
from handfast.pki import authority, certificates, keys, names, profiles, renewal
from tests.unit.pki.making import NOW

HOUR = datetime.timedelta(hours=1)
DAY = 24 * HOUR
ROOT = authority.self_signed_ca(names.Subject(common_name="root"), keys.generate(), NOW)
PUBLIC = keys.generate().public


@pytest.mark.parametrize(
    ("begins", "ends", "earliest", "latest"),
    [
        pytest.param(-HOUR, 99 * HOUR, 69 * HOUR, 89 * HOUR, id="just issued"),
        pytest.param(-24 * HOUR, 24 * HOUR, 9.6 * HOUR, 19.2 * HOUR, id="half way"),
        pytest.param(-69 * HOUR, 31 * HOUR, HOUR, 21 * HOUR, id="an hour before its time"),
        pytest.param(-91 * HOUR, 9 * HOUR, -21 * HOUR, -HOUR, id="past its time"),
        pytest.param(-99 * HOUR, HOUR, -29 * HOUR, -9 * HOUR, id="nearly expired"),
        pytest.param(-10 * HOUR, -HOUR, -3.7 * HOUR, -1.9 * HOUR, id="expired"),
        pytest.param(-180 * DAY, 180 * DAY, 72 * DAY, 144 * DAY, id="long"),
        pytest.param(-HOUR / 120, HOUR / 120, HOUR / 300, HOUR / 150, id="short"),
    ],
)
def test_renewal_lies_between_70_and_90_percent_of_the_lifetime(
    begins: datetime.timedelta, ends: datetime.timedelta, earliest: datetime.timedelta, latest: datetime.timedelta
):
    begins_at, ends_at = NOW + begins, NOW + ends
    assert abs(renewal.deadline(begins_at, ends_at, 0) - (NOW + earliest)) <= datetime.datetime.resolution
    middle = renewal.deadline(begins_at, ends_at, 0.5)
    assert abs(middle - (NOW + (earliest + latest) / 2)) <= datetime.datetime.resolution
    # The last instant belongs to the next draw.
    assert middle < renewal.deadline(begins_at, ends_at, 0.999999) < NOW + latest


@pytest.mark.parametrize("point", [-0.1, 1, 1.5, float("nan")])
def test_a_point_out_of_range_is_a_bug(point: float):
    with pytest.raises(errors.Misuse, match="point"):
        renewal.deadline(NOW, NOW + DAY, point)


class TestRenewalPoint:
    """Every holder has instants of its own, 80 % of a lifetime apart."""

    def renewals(self, place: float, count: int, delay: datetime.timedelta = HOUR * 0) -> list[datetime.datetime]:
        """Of a holder whose first renewal comes late; certificates last a day."""
        chance = random.Random(place)
        at, found = NOW, []
        for number in range(count):
            share = renewal.renewal_point(at, at + DAY, place, chance.random())
            assert 0 <= share <= renewal.LATEST
            at = renewal.deadline(at, at + DAY, share) + (delay if number == count // 2 else 0 * HOUR)
            found.append(at)
        return found

    @pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
    def test_it_comes_to_its_own_instants_and_stays(self, place: float):
        steps = [later - earlier for earlier, later in itertools.pairwise(self.renewals(place, 40))]
        assert all(abs(step - 0.8 * DAY) < datetime.timedelta(milliseconds=1) for step in steps[20:])
        last = self.renewals(place, 40)[-1].timestamp() / (0.8 * DAY).total_seconds() % 1
        assert min(abs(last - place), 1 - abs(last - place)) < 1e-6

    @pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.999])
    def test_late_by_a_tenth_it_is_back_with_the_next(self, place: float):
        usual, late = self.renewals(place, 41), self.renewals(place, 41, delay=DAY / 10 - HOUR / 60)
        assert late[20] - usual[20] == DAY / 10 - HOUR / 60
        assert abs(late[21] - usual[21]) < datetime.timedelta(milliseconds=1)

    @pytest.mark.parametrize("days", [1 / 24, 1 / 3, 0.5, 1, 2, 7, 30, 45, 90, 100, 180, 365, 366])
    @pytest.mark.parametrize("place", [0.0, 0.3, 0.7])
    def test_lifetimes_that_differ_by_seconds_or_minutes_have_the_same_instants(self, days: float, place: float):
        """Of an hour's by up to 5 seconds, of a day's by up to 2 minutes."""
        chance = random.Random(place)
        usual, at = DAY * days, NOW
        own = []
        for number in range(120):
            ends = (at + usual * (1 + chance.uniform(-1, 1) / 700)).replace(microsecond=0)
            point = renewal.renewal_point(at, ends, place, chance.random())
            assert 0 <= point <= renewal.LATEST
            at = renewal.deadline(at, ends, point)
            if number >= 40:
                own.append(at.timestamp() / renewal.cycle(usual).total_seconds() % 1)
        assert max(min(abs(found - place), 1 - abs(found - place)) for found in own) < 1e-4

    def test_the_cycle_is_four_fifths_of_the_lifetime_within_a_hundredth(self):
        shares = [renewal.cycle(HOUR * 1.01**power) / (HOUR * 1.01**power) for power in range(-300, 1200)]
        assert 0.8 * 0.988 < min(shares) < 0.8 < max(shares) < 0.8 * 1.004
        assert renewal.cycle(DAY) == 0.8 * DAY

    def test_those_born_together_spread_evenly_at_once(self):
        chance = random.Random(1)
        found = [
            renewal.renewal_point(NOW, NOW + DAY, renewal.place_in_cycle(f"n{number}"), chance.random())
            for number in range(5000)
        ]
        tenths = collections.Counter(int(10 * share / renewal.LATEST * 0.999999) for share in found)
        assert sorted(tenths) == list(range(10))
        assert all(400 < count < 600 for count in tenths.values()), tenths

    def test_a_certificate_without_a_lifetime(self):
        assert renewal.renewal_point(NOW, NOW, 0.5, 0.5) == renewal.LATEST / 2
        assert renewal.renewal_point(NOW, NOW - HOUR, 0.5, 0.0) == 0

    def test_every_holder_has_a_place_of_its_own(self):
        found = [renewal.place_in_cycle(f"n{number}") for number in range(1000)]
        assert all(0 <= place < 1 for place in found)
        assert len(set(found)) == 1000
        assert renewal.place_in_cycle("n1") == renewal.place_in_cycle("n1")


def certificate(common_name: str, organizations: tuple[str, ...], *sans: str) -> certificates.Certificate:
    subject = names.Subject(common_name=common_name, organizations=organizations)
    return certificates.read(ROOT.issue(PUBLIC, subject, names.Sans.parse(sans), profiles.KUBELET_SERVING, NOW).der)


HAS = certificate("system:node:a", ("system:nodes", "extra"), "DNS:a", "DNS:b", "IP:192.0.2.1", "IP:2001:db8::1")
ALL = ("DNS:a", "DNS:b", "IP:192.0.2.1", "IP:2001:db8::1")


@pytest.mark.parametrize(
    ("common_name", "organizations", "sans", "lacks"),
    [
        pytest.param("system:node:a", ("system:nodes", "extra"), ALL, None, id="exactly what it has"),
        pytest.param("system:node:b", ("system:nodes",), (), "common name is 'system:node:a'", id="other common name"),
        pytest.param("system:node:a", ("system:nodes",), ALL, None, id="extra organization"),
        pytest.param("system:node:a", ("system:nodes", "ops"), ALL, "organizations ops", id="missing organization"),
        pytest.param("system:node:a", ("ops", "dev"), ALL, "organizations ops, dev", id="two missing organizations"),
        pytest.param("system:node:a", (), ("DNS:c", "DNS:d"), "names DNS:c, DNS:d", id="two missing names"),
        pytest.param("system:node:a", ("extra", "system:nodes"), ALL, None, id="organizations in another order"),
        pytest.param("system:node:a", (), ALL[1:], None, id="extra DNS name"),
        pytest.param("system:node:a", (), (*ALL, "DNS:c"), "names DNS:c", id="missing DNS name"),
        pytest.param("system:node:a", (), ALL[:2], None, id="extra addresses"),
        pytest.param("system:node:a", (), ("IP:192.0.2.2",), "names IP:192.0.2.2", id="missing address"),
        pytest.param("system:node:a", (), ("IP:2001:db8:0::1",), None, id="the same address written otherwise"),
        pytest.param("system:node:a", (), (), None, id="no alternative names wanted"),
    ],
)
def test_template_satisfaction(
    common_name: str, organizations: tuple[str, ...], sans: tuple[str, ...], lacks: str | None
):
    wanted = names.Subject(common_name=common_name, organizations=organizations)
    said = renewal.lacking(HAS, wanted, names.Sans.parse(sans))
    if lacks is None:
        assert said is None
    else:
        assert said is not None
        assert lacks in said
