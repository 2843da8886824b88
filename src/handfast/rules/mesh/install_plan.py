# SPDX-License-Identifier: Apache-2.0
"""What an installation comes to, given what was typed and what is there: decided before the first write. It writes nothing.

1. What is typed stands over what is there, and what is there over the defaults.
2. On a mesh in use, what renames every workload has to be forced.
3. Issuer and anchors are those that were given, else those that are there, else new ones.
4. Where only one of the two is there, or both are gone from a mesh in use, nothing is made up: what fits to them has to be given, or new ones have to be
   forced. Anchors made by a run that was cut short are made again.
5. An anchor that somebody trusts already stays. Taking one away has to be forced: workloads with certificates below it would be believed no more.
6. The issuer passes all of its checks under the new settings, whoever chose it.
7. While the root is being replaced (`anchor_rotation`), issuer and anchors stay as they are: neither files nor --force undo half of a rotation.

| who | holding | tries | stopped by | shown in tests/unit/rules/mesh/test_install_plan.py |
|---|---|---|---|---|
| a tired operator | another root | install it over the one in use | 5 | test_an_anchor_in_use_is_not_taken_away_unless_forced |
| … | a Secret that was deleted | have a new root made silently, which no workload trusts | 4 | test_what_is_gone_from_a_mesh_in_use_is_not_made_up |
| … | the files of the first installation | put the old issuer back in the middle of a rotation | 7 | test_a_rotation_that_is_under_way_is_not_undone |
| … | another trust domain | rename every workload by a typing error | 2 | test_another_trust_domain_has_to_be_forced |
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from handfast import errors
from handfast.api import objects
from handfast.bootstrap import first_objects
from handfast.pki import bundles, certificates
from handfast.rules.mesh import control_plane, installation, issuer, settings


class Rotating(errors.Refused):
    """Another issuer, or other anchors, in the middle of a rotation (7)."""

    reason = "RotationUnderWay"


class Incomplete(errors.Refused):
    """Only a part of issuer and anchors is there (4)."""

    reason = "MeshIncomplete"


_GIVE: Final = "give all three of --trust-anchors, --issuer-cert and --issuer-key; --force makes new ones, which no running workload trusts"


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator said: values for keys of the settings, issuer with anchors, if any, and where services outside the cluster are."""

    namespace: str = control_plane.NAMESPACE
    texts: Mapping[str, str]
    material: issuer.Material | None = None
    # Door -> HOST:PORT.
    endpoints: Mapping[str, str] = msgspec.field(default_factory=dict)
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class There:
    """What the cluster has; None is not there."""

    config: objects.Document | None = None
    anchors: objects.Document | None = None
    signing: objects.Document | None = None
    # How far a rotation is; absent while none is under way.
    rotation: objects.Document | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to store. `generated` is whether the anchors are made here, now or earlier."""

    settings: settings.Settings
    material: issuer.Material
    generated: bool
    issuer: issuer.Issuer


def decide(typed: Typed, there: There, now: datetime.datetime) -> Plan:
    """What to store, or a refusal."""
    # 1. what is typed, what is there, the defaults
    before = None if there.config is None else settings.parse(there.config.get("data") or {})
    after = settings.changed(before or settings.Settings(), typed.texts)
    mesh = after.mesh(typed.namespace)
    # 2. on a mesh in use
    if before is not None:
        settings.require_change(before, after, force=typed.force)
    material, generated = _material(typed, there, now)
    # 7. a rotation goes on
    if there.rotation is not None and not _is_there(there, material):
        raise Rotating(
            "the root of the mesh is being replaced: issuer and trust anchors stay until that is over",
            hint="finish it with handfast mesh anchors rotate, or go back with --undo; without the three files the rest is installed",
        )
    # 5. no anchor is taken away
    if not typed.force and not _is_cut_short(there):
        _require_kept(there, issuer.read_anchors(material.anchors))
    # 6. every check
    return Plan(settings=after, material=material, generated=generated, issuer=issuer.load(material, mesh, now))


def _material(typed: Typed, there: There, now: datetime.datetime) -> tuple[issuer.Material, bool]:
    # 3. given, there, new
    if typed.material is not None:
        return issuer.stored(typed.material), False
    if there.anchors is not None and there.signing is not None:
        return installation.read_material(there.signing, there.anchors), installation.is_generated(there.anchors)
    nothing = there.anchors is None and there.signing is None and there.config is None
    # 4. nothing is made up
    if nothing or typed.force or _is_cut_short(there):
        return issuer.generate(now), True
    raise Incomplete(_missing(there), hint=_GIVE)


def _is_there(there: There, material: issuer.Material) -> bool:
    """Whether this is what is there, or what is there cannot be used and may be mended."""
    if there.signing is None or there.anchors is None:
        return True
    try:
        return issuer.stored(installation.read_material(there.signing, there.anchors)) == issuer.stored(material)
    except issuer.Unfit:
        return True


def _is_cut_short(there: There) -> bool:
    """Whether an earlier run made anchors and came no further (4)."""
    only = there.config is None and there.signing is None
    return only and there.anchors is not None and installation.is_generated(there.anchors)


def _missing(there: There) -> str:
    secret, config_map = f"Secret {control_plane.SIGNING}", f"ConfigMap {control_plane.TRUST_ANCHOR}"
    if there.anchors is None and there.signing is None:
        return f"the mesh is in use, and both {secret} and {config_map} are gone"
    if there.signing is None:
        return f"there is a {config_map}, and no {secret} with an issuer below it"
    return f"there is a {secret}, and no {config_map} above it"


def _require_kept(there: There, after: bundles.TrustBundle) -> None:
    gone = [anchor for anchor in _trusted(there) if anchor not in after.anchors]
    if gone:
        raise settings.NeedsForce(
            f"trust anchor {gone[0].subject} would no longer be trusted, and with it every workload whose certificate is below it",
            hint="give the old anchors beside the new ones until every workload has the new; if it is meant so: --force",
        )


def _trusted(there: There) -> tuple[certificates.Certificate, ...]:
    """The anchors that are there; what cannot be read is trusted by nobody."""
    try:
        return () if there.anchors is None else issuer.read_anchors(installation.read_anchors(there.anchors)).anchors
    except issuer.Unfit:
        return ()


def documents(
    typed: Typed, there: There, plan: Plan
) -> tuple[tuple[first_objects.FirstObject, objects.Document | None], ...]:
    """Anchors, issuer and settings, each with what is there of it, in the order in which they are written."""
    anchors, signing = installation.trust(typed.namespace, plan.material, generated=plan.generated)
    config = installation.config(typed.namespace, plan.settings)
    return (anchors, there.anchors), (signing, there.signing), (config, there.config)
