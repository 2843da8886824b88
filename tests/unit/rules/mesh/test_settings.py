# SPDX-License-Identifier: Apache-2.0
"""The settings of the mesh: what may be written, what is refused and how, and what has to be forced."""

from __future__ import annotations

import datetime

import pytest

from handfast.rules.mesh import names, settings

LEAST = {"trustDomain": "cluster.local"}


def test_the_trust_domain_alone_is_every_default():
    assert settings.parse(LEAST) == settings.Settings()
    assert settings.Settings().lifetime == datetime.timedelta(hours=24)
    assert settings.Settings().mesh("mesh") == names.Mesh("cluster.local", "mesh", names.Scheme.ACCOUNT)


def test_what_is_written_is_read_back():
    chosen = settings.Settings(
        trust_domain="mesh.example",
        enabled=False,
        default_enabled=False,
        lifetime=datetime.timedelta(minutes=90),
        skew=datetime.timedelta(0),
        scheme=names.Scheme.UID,
        spiffe=True,
        accept_api_audience=True,
        own_token=False,
        identity_address="192.0.2.1:8080",
        destination_address="[2001:db8::1]:8086",
        agents_address="mesh.example:8089",
        failure_policy=settings.FAIL,
        default_policy=settings.EVERY_WORKLOAD,
        controller_image="example.com/handfast:1",
        replicas=3,
        proxy_image="example.com/proxy@sha256:00",
    )
    written = settings.data(chosen)
    assert written == {
        "trustDomain": "mesh.example",
        "identity.enabled": "false",
        "identity.default": "disabled",
        "identity.lifetime": "1h30m",
        "identity.clockSkew": "0s",
        "identity.nameScheme": "uid",
        "identity.spiffe": "true",
        "identity.acceptApiAudience": "true",
        "identity.token": "account",
        "identity.address": "192.0.2.1:8080",
        "destination.address": "[2001:db8::1]:8086",
        "policy.address": "",
        "agents.address": "mesh.example:8089",
        "injector.failurePolicy": "Fail",
        "injector.certificateLifetime": "7d",
        "proxy.defaultPolicy": "all-authenticated",
        "proxy.image": "example.com/proxy@sha256:00",
        "proxy.initImage": "handfast-agent:latest",
        "controller.image": "example.com/handfast:1",
        "controller.replicas": "3",
    }
    assert settings.parse(written) == chosen
    assert settings.parse(settings.data(settings.Settings())) == settings.Settings()


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("trustDomain", "Cluster.Local", "an RFC 1123 subdomain such as cluster.local"),
        ("trustDomain", "", "an RFC 1123 subdomain"),
        ("trustDomain", 7, "an RFC 1123 subdomain"),
        ("identity.enabled", "yes", "true or false"),
        ("identity.enabled", True, "true or false"),
        ("identity.enabled", None, "true or false"),
        ("identity.default", "true", "enabled or disabled"),
        ("identity.lifetime", "soon", "a duration of 1m to 7d"),
        ("identity.lifetime", "59s", "a duration of 1m to 7d"),
        ("identity.lifetime", "8d", "a duration of 1m to 7d"),
        ("identity.clockSkew", "6m", "a duration of 0s to 5m"),
        ("identity.token", "secret", "projected or account"),
        ("identity.token", "account", "projected, where identity.acceptApiAudience is false"),
        ("identity.address", "host", "HOST:PORT, or nothing"),
        ("agents.address", "[::1]", "HOST:PORT, or nothing"),
        ("injector.failurePolicy", "ignore", "Ignore or Fail"),
        ("proxy.defaultPolicy", "audit", "deny or all-authenticated or all-unauthenticated"),
        ("controller.image", "a b", "an image"),
        ("controller.replicas", "0", "a number from 1 to 99"),
        ("proxy.image", "", "an image"),
        ("proxy.initImage", "a b", "an image"),
        ("identity.nameScheme", "spiffe", "sa or serviceaccount or uid"),
        ("identity.spiffe", "1", "true or false"),
        ("identity.acceptApiAudience", "TRUE", "true or false"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(key, value, allowed):
    with pytest.raises(settings.Unreadable, match=rf"^{key}: .* is not allowed$") as refused:
        settings.parse({**LEAST, key: value})
    assert f"allowed: {allowed}" in str(refused.value.hint)


def test_a_long_value_is_cut_short():
    with pytest.raises(settings.Unreadable) as refused:
        settings.parse({"trustDomain": "X" * 1000})
    assert len(refused.value.message) < 120


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("identity.lifetme", "did you mean identity.lifetime?"),
        ("trustdomain", "did you mean trustDomain?"),
        ("x", "there are trustDomain, identity.enabled"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(key, hint):
    with pytest.raises(settings.Unreadable, match=f'there is no setting "{key}"') as refused:
        settings.parse({**LEAST, key: "1h"})
    assert str(refused.value.hint).startswith(hint)


def test_a_trust_domain_that_is_not_written_is_not_guessed():
    with pytest.raises(settings.Unreadable, match="trustDomain is missing"):
        settings.parse({})


def test_nobody_gets_by_default_an_identity_that_there_is_not():
    with pytest.raises(settings.Unreadable, match=r'identity\.default: "enabled" is not allowed'):
        settings.parse({**LEAST, "identity.enabled": "false"})
    assert not settings.parse({**LEAST, "identity.enabled": "false", "identity.default": "disabled"}).default_enabled


@pytest.mark.parametrize(
    ("values", "key"),
    [({"trustDomain": "other.example"}, "trustDomain"), ({"identity.nameScheme": "uid"}, "identity.nameScheme")],
)
def test_what_renames_every_workload_has_to_be_forced(values, key):
    before = settings.Settings()
    after = settings.changed(before, values)
    with pytest.raises(settings.NeedsForce, match=f"^{key} is ") as refused:
        settings.require_change(before, after, force=False)
    assert refused.value.reason == "MeshIsLive"
    assert "--force" in str(refused.value.hint)
    settings.require_change(before, after, force=True)


def test_any_other_change_is_not_forced():
    before = settings.Settings()
    settings.require_change(before, settings.changed(before, {"identity.spiffe": "true"}), force=False)
    settings.require_change(before, before, force=False)


def test_a_change_is_judged_as_if_it_were_read():
    with pytest.raises(settings.Unreadable, match="trustDomain"):
        settings.changed(settings.Settings(), {"trustDomain": "A"})
