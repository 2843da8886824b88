# SPDX-License-Identifier: Apache-2.0
"""The table of profiles and the arithmetic of lifetimes; it does not test signing."""

from __future__ import annotations

import datetime

import pytest

from handfast import errors
from handfast.pki import profiles, usages

NOW = datetime.datetime(2026, 6, 1, 12, 0, 0, 999, tzinfo=datetime.UTC)
SECOND = NOW.replace(microsecond=0)
MINUTE = datetime.timedelta(minutes=1)
HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("asked", "begins", "ends"),
    [
        pytest.param(None, -5 * MINUTE, 24 * HOUR - 5 * MINUTE, id="the profile's"),
        pytest.param(HOUR, -5 * MINUTE, HOUR, id="short: backdating comes on top"),
        pytest.param(8 * HOUR - MINUTE, -5 * MINUTE, 8 * HOUR - MINUTE, id="just short"),
        pytest.param(8 * HOUR, -5 * MINUTE, 8 * HOUR - 5 * MINUTE, id="long: backdating counts"),
        pytest.param(48 * HOUR, -5 * MINUTE, 24 * HOUR - 5 * MINUTE, id="more than permitted"),
        pytest.param(9 * MINUTE + 59 * MINUTE / 60, -5 * MINUTE, 10 * MINUTE, id="less than ten minutes"),
        pytest.param(-MINUTE, -5 * MINUTE, 10 * MINUTE, id="negative"),
    ],
)
def test_a_lifetime_is_bounded_and_backdating_counts_from_eight_hours_on(
    asked: datetime.timedelta | None, begins: datetime.timedelta, ends: datetime.timedelta
):
    profile = profiles.for_usages("test", ["client auth"], 24 * HOUR)
    assert profile.window(NOW, asked) == (SECOND + begins, SECOND + ends)


def test_window_in_utc():
    zone = datetime.timezone(datetime.timedelta(hours=-7))
    window = profiles.CLIENT.window(NOW.astimezone(zone))
    assert window == profiles.CLIENT.window(NOW)
    assert {moment.tzinfo for moment in window} == {datetime.UTC}


def test_now_without_zone_is_a_bug():
    with pytest.raises(errors.Misuse):
        profiles.CLIENT.window(NOW.replace(tzinfo=None))


def test_only_the_serving_profiles_serve_and_only_the_client_profiles_log_in():
    every = [found for found in vars(profiles).values() if isinstance(found, profiles.Profile)]
    serving = {profile.name for profile in every if usages.SERVER_AUTH in profile.usages}
    clients = {profile.name for profile in every if usages.CLIENT_AUTH in profile.usages}
    cas = {profile.name for profile in every if profile.is_ca}
    assert serving == {"apiserver-serving", "kubelet-serving"}
    assert clients == {"client", "kubelet-client"}
    assert cas == {"root-ca", "intermediate-ca"}


def test_usages_of_a_request():
    profile = profiles.for_usages("legacy", ["signing", "client auth"], HOUR)
    assert profile.usages == {"digital signature", "client auth"}
    assert not profile.is_ca
    with pytest.raises(errors.Refused) as caught:
        profiles.for_usages("legacy", ["cert sign"], HOUR)
    assert caught.value.reason == "ForbiddenUsage"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"usages": frozenset({"client auth"}), "path_length": 1}, "only a CA has a path length"),
        ({"usages": frozenset({"client auth"}), "is_ca": True}, "a CA, and only a CA, has the usage 'cert sign'"),
        ({"usages": frozenset({"cert sign"})}, "a CA, and only a CA, has the usage 'cert sign'"),
    ],
)
def test_a_profile_that_makes_no_sense_is_a_bug(wrong, says):
    with pytest.raises(errors.Misuse, match=says):
        profiles.Profile(name="wrong", lifetime=HOUR, **wrong)
