# SPDX-License-Identifier: Apache-2.0
"""What the mesh is set to: the ConfigMap linkerd-config, read and written, a key each. It follows nothing: the services do.

1. A key that is not known is refused, with the nearest one that is. Nothing of such a document counts: half of it could be less than
   the operator meant.
2. Every value is a text of its form. What is wrong is named: the key, the value and what is allowed.
3. The trust domain is always written. A default could name other identities than those that are in use.
4. `identity.default: enabled` needs `identity.enabled`: without it, every Pod would be refused.
5. The token of the account needs `identity.acceptApiAudience`: without it, every workload would be refused its certificate.
6. A change of the trust domain or of the name scheme renames every workload of a mesh that is in use. It has to be forced.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from handfast import errors
from handfast.api import durations
from handfast.rules.mesh import addresses, control_plane, names

TRUST_DOMAIN: Final = "cluster.local"
ENABLED: Final = "enabled"
DISABLED: Final = "disabled"
SHORTEST: Final = datetime.timedelta(minutes=1)
# As long as the ledger of the mesh is kept.
LONGEST: Final = datetime.timedelta(days=7)
_YEAR: Final = datetime.timedelta(days=365)
MOST_SKEW: Final = datetime.timedelta(minutes=5)
_MOST_SHOWN: Final = 80
# Which token a proxy shows: one of its own, for the identity service alone, or that of the account.
PROJECTED: Final = "projected"
ACCOUNT: Final = "account"
IMAGE: Final = "handfast-agent:latest"
CONTROLLER_IMAGE: Final = "handfast:latest"
MOST_REPLICAS: Final = 99
# Whom a proxy lets in at a port that the policy service has not answered for, in Linkerd's words.
NOBODY: Final = "deny"
EVERYBODY: Final = "all-unauthenticated"
EVERY_WORKLOAD: Final = "all-authenticated"
# As `failurePolicy` of a webhook: let it in without a proxy, or refuse it.
IGNORE: Final = "Ignore"
FAIL: Final = "Fail"
_NUMBER: Final = re.compile(r"[1-9][0-9]?", re.ASCII)
# A reference as container runtimes take it, without anything that a shell or a template would read.
_IMAGE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]{0,511}", re.ASCII)


class Unreadable(errors.Refused):
    """The settings are not to be used (1 to 5)."""

    reason = "MeshSettingsUnreadable"


class NeedsForce(errors.Refused):
    """A change that renames every workload (6)."""

    reason = "MeshIsLive"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is decided by. `default_enabled` is for workloads that do not say whether they have an identity."""

    trust_domain: str = TRUST_DOMAIN
    enabled: bool = True
    default_enabled: bool = True
    lifetime: datetime.timedelta = datetime.timedelta(days=1)
    skew: datetime.timedelta = datetime.timedelta(seconds=20)
    scheme: names.Scheme = names.Scheme.ACCOUNT
    spiffe: bool = False
    accept_api_audience: bool = False
    own_token: bool = True
    # HOST:PORT; empty is the Service of the control plane.
    identity_address: str = ""
    destination_address: str = ""
    policy_address: str = ""
    agents_address: str = ""
    # What the API server does with a Pod while the injector does not answer.
    failure_policy: str = IGNORE
    # Of the certificate that the injector shows to the API server.
    injector_lifetime: datetime.timedelta = datetime.timedelta(days=7)
    default_policy: str = NOBODY
    proxy_image: str = IMAGE
    init_image: str = IMAGE
    controller_image: str = CONTROLLER_IMAGE
    replicas: int = 1

    def mesh(self, control_plane_namespace: str = control_plane.NAMESPACE) -> names.Mesh:
        """The mesh that these settings name."""
        return names.Mesh(self.trust_domain, control_plane_namespace, self.scheme)


class Form(msgspec.Struct, frozen=True):
    """How values of one kind are read and written; `read` raises ValueError."""

    read: Callable[[str], Any]
    write: Callable[[Any], str]
    allowed: str


def parse(data: Mapping[str, Any]) -> Settings:
    """The settings that the data of the ConfigMap say. Unreadable where something is wrong."""
    chosen = {}
    for key, text in data.items():
        # 1. only keys that are known
        if key not in KEYS:
            raise _unknown(key)
        attribute, form = KEYS[key]
        chosen[attribute] = read(key, form, text)
    # 3. the trust domain is always written
    if "trust_domain" not in chosen:
        raise Unreadable("trustDomain is missing", hint="write the one that is in use: identities end in it")
    settings = Settings(**chosen)
    # 4. nobody gets by default what there is not
    if settings.default_enabled and not settings.enabled:
        raise _refused("identity.default", ENABLED, "disabled, where identity.enabled is false")
    # 5. nobody shows a token that is not taken
    if not settings.own_token and not settings.accept_api_audience:
        raise _refused("identity.token", ACCOUNT, f"{PROJECTED}, where identity.acceptApiAudience is false")
    return settings


def read(key: str, form: Form, text: Any) -> Any:
    """One value by its form (2)."""
    try:
        if isinstance(text, str):
            return form.read(text)
    except (ValueError, errors.Refused):
        pass
    raise _refused(key, text, form.allowed) from None


def data(settings: Settings) -> dict[str, str]:
    """The same, as `parse` reads it: every key, so that what counts can be read off."""
    return {key: form.write(getattr(settings, attribute)) for key, (attribute, form) in KEYS.items()}


def changed(before: Settings, texts: Mapping[str, Any]) -> Settings:
    """The settings with other values for some keys, judged as if all were read."""
    return parse({**data(before), **texts})


def require_change(before: Settings, after: Settings, *, force: bool) -> None:
    """Return if a mesh in use may go from one to the other, else refuse (6)."""
    # 6. what renames every workload is forced
    for key in ("trustDomain", "identity.nameScheme"):
        attribute, form = KEYS[key]
        old, new = getattr(before, attribute), getattr(after, attribute)
        if old != new and not force:
            raise NeedsForce(
                f"{key} is {form.write(old)}, and would become {form.write(new)}: every workload of the mesh gets another "
                f"name, and those that run do not know one another until they are started again",
                hint="if that is meant: --force",
            )


def _trust_domain(text: str) -> str:
    names.require_trust_domain(text)
    return text


def _address(text: str) -> str:
    if text:
        addresses.require(text)
    return text


def _image(text: str) -> str:
    if _IMAGE.fullmatch(text) is None:
        raise ValueError(text)
    return text


def _count(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _one_of(values: Mapping[str, Any]) -> Form:
    texts = {value: text for text, value in values.items()}

    def choose(text: str) -> Any:
        if text not in values:
            raise ValueError(text)
        return values[text]

    return Form(choose, texts.__getitem__, " or ".join(values))


def _duration(least: datetime.timedelta, most: datetime.timedelta) -> Form:
    def bounded(text: str) -> datetime.timedelta:
        duration = durations.parse(text)
        if not least <= duration <= most:
            raise ValueError(text)
        return duration

    return Form(bounded, durations.text, f"a duration of {durations.text(least)} to {durations.text(most)}")


def _unknown(key: str) -> Unreadable:
    near = difflib.get_close_matches(key, KEYS, n=1)
    suggestion = f"did you mean {near[0]}?" if near else f"there are {', '.join(KEYS)}"
    return Unreadable(f"there is no setting {_shown(key)}", hint=suggestion)


def _refused(key: str, value: Any, allowed: str) -> Unreadable:
    return Unreadable(f"{key}: {_shown(value)} is not allowed", hint=f"allowed: {allowed}")


def _shown(value: Any) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= _MOST_SHOWN else f"{shown[:_MOST_SHOWN]}…"


BOOLEAN: Final = _one_of({"true": True, "false": False})
_TRUST_DOMAIN: Final = Form(
    _trust_domain, str, "an RFC 1123 subdomain such as cluster.local, whose last label is no number"
)
_ADDRESS: Final = Form(_address, str, "HOST:PORT, or nothing for the Service of the control plane")
_REFERENCE: Final = Form(_image, str, "an image, as in handfast-agent:latest")
# Key of the ConfigMap -> the field of Settings, and the form of its values.
KEYS: Final[Mapping[str, tuple[str, Form]]] = {
    "trustDomain": ("trust_domain", _TRUST_DOMAIN),
    "identity.enabled": ("enabled", BOOLEAN),
    "identity.default": ("default_enabled", _one_of({ENABLED: True, DISABLED: False})),
    "identity.lifetime": ("lifetime", _duration(SHORTEST, LONGEST)),
    "identity.clockSkew": ("skew", _duration(datetime.timedelta(), MOST_SKEW)),
    "identity.nameScheme": ("scheme", _one_of({scheme.value: scheme for scheme in names.Scheme})),
    "identity.spiffe": ("spiffe", BOOLEAN),
    "identity.acceptApiAudience": ("accept_api_audience", BOOLEAN),
    "identity.token": ("own_token", _one_of({PROJECTED: True, ACCOUNT: False})),
    "identity.address": ("identity_address", _ADDRESS),
    "destination.address": ("destination_address", _ADDRESS),
    "policy.address": ("policy_address", _ADDRESS),
    "agents.address": ("agents_address", _ADDRESS),
    "injector.failurePolicy": ("failure_policy", _one_of({IGNORE: IGNORE, FAIL: FAIL})),
    "injector.certificateLifetime": ("injector_lifetime", _duration(SHORTEST, _YEAR)),
    "proxy.defaultPolicy": ("default_policy", _one_of({each: each for each in (NOBODY, EVERY_WORKLOAD, EVERYBODY)})),
    "proxy.image": ("proxy_image", _REFERENCE),
    "proxy.initImage": ("init_image", _REFERENCE),
    "controller.image": ("controller_image", _REFERENCE),
    "controller.replicas": ("replicas", Form(_count, str, f"a number from 1 to {MOST_REPLICAS}")),
}
