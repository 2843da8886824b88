# SPDX-License-Identifier: Apache-2.0
"""The units of a configuration as files and links."""

import pytest

from handfast import errors
from handfast.rules.machine_config import ignition, planned_units

BASE = "/etc/systemd/system"
INSTALL = "[Install]\nWantedBy=a.target\n"


def config(*units):
    return ignition.parse({"ignition": {"version": "3.5.0"}, "systemd": {"units": list(units)}}, "x")


def test_contents_and_dropins_are_files():
    parsed = config(
        {
            "name": "a.service",
            "contents": "[Unit]\n",
            "dropins": [{"name": "10.conf", "contents": "x"}, {"name": "20.conf"}],
        },
        {"name": "vendor.service", "dropins": [{"name": "10.conf", "contents": "y"}]},
    )
    assert dict(planned_units.files(parsed)) == {
        f"{BASE}/a.service": b"[Unit]\n",
        f"{BASE}/a.service.d/10.conf": b"x",
        f"{BASE}/a.service.d/20.conf": b"",
        f"{BASE}/vendor.service.d/10.conf": b"y",
    }
    assert planned_units.links(parsed, {}) == ({}, [])


def test_a_masked_unit_is_a_link_to_nowhere_whatever_else_is_said():
    parsed = config({"name": "a.service", "contents": INSTALL, "enabled": True, "mask": True})
    assert dict(planned_units.files(parsed)) == {}
    assert planned_units.links(parsed, {}) == ({f"{BASE}/a.service": "/dev/null"}, [])


def test_a_unit_of_the_operating_system_is_enabled_where_it_lies():
    parsed = config({"name": "sshd.service", "enabled": True}, {"name": "other.service", "enabled": False})
    assert planned_units.vendor_wanted(parsed) == ("sshd.service", "other.service")
    vendor = {"sshd.service": planned_units.VendorUnit("/usr/lib/systemd/system/sshd.service", INSTALL)}
    links, absent = planned_units.links(parsed, vendor)
    assert links == {f"{BASE}/a.target.wants/sshd.service": "/usr/lib/systemd/system/sshd.service"}
    # What is not there need not be disabled.
    assert absent == []


def test_an_instance_uses_the_template_of_the_same_configuration():
    parsed = config({"name": "x@.service", "contents": INSTALL}, {"name": "x@1.service", "enabled": True})
    assert planned_units.vendor_wanted(parsed) == ()
    assert planned_units.links(parsed, {})[0] == {f"{BASE}/a.target.wants/x@1.service": f"{BASE}/x@.service"}


def test_what_is_enabled_together_has_to_be_enabled_here():
    also = {"name": "a.service", "contents": f"{INSTALL}Also=a.socket\n", "enabled": True}
    with pytest.raises(errors.Refused, match=r"is enabled together with a.socket \(Also=\)"):
        planned_units.links(config(also), {})
    links, _ = planned_units.links(config(also, {"name": "a.socket", "contents": INSTALL, "enabled": True}), {})
    assert len(links) == 2


def test_a_dropin_can_enable():
    parsed = config(
        {
            "name": "a.service",
            "contents": "[Unit]\n",
            "enabled": True,
            "dropins": [{"name": "b.conf", "contents": INSTALL}, {"name": "a.conf"}],
        }
    )
    assert planned_units.links(parsed, {})[0] == {f"{BASE}/a.target.wants/a.service": f"{BASE}/a.service"}
