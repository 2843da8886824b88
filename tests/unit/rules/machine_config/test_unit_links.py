# SPDX-License-Identifier: Apache-2.0
"""What enabling a unit makes, as systemctl would."""

import time

import pytest

from handfast import errors
from handfast.rules.machine_config import unit_links

BASE = "/etc/systemd/system"
PATH = f"{BASE}/a.service"


def test_every_way_to_be_enabled_makes_its_link():
    text = "[Unit]\nWantedBy=not-here.target\n[Install]\n# WantedBy=x.target\nWantedBy=a.target b.target\nRequiredBy=c.target\nUpheldBy=d.target\nAlias=e.service a.service\nAlso=f.socket\nOther=1\nnothing\n"
    enabled = unit_links.enabled("a.service", PATH, [text])
    assert enabled.links == {
        f"{BASE}/a.target.wants/a.service": PATH,
        f"{BASE}/b.target.wants/a.service": PATH,
        f"{BASE}/c.target.requires/a.service": PATH,
        f"{BASE}/d.target.upholds/a.service": PATH,
        f"{BASE}/e.service": PATH,
    }
    assert enabled.also == ("f.socket",)


def test_an_empty_value_takes_back_and_dropins_count_at_the_end():
    dropin = "[Install]\nWantedBy=\nWantedBy=b.target \\\nc.target\r\n"
    enabled = unit_links.enabled("a.service", PATH, ["[Install]\nWantedBy=a.target\n", dropin])
    assert enabled.links == {f"{BASE}/{name}.target.wants/a.service": PATH for name in "bc"}


def test_many_lines_take_time_in_proportion_to_their_number():
    names = {f"w{number}.target" for number in range(40_000)}
    text = "[Install]\n" + "".join(f"WantedBy={name}\n" for name in sorted(names))
    began = time.process_time()
    enabled = unit_links.enabled("a.service", PATH, [text])
    assert len(enabled.links) == len(names)
    # Copying what stands before for each line took ten seconds.
    assert time.process_time() - began < 3


def test_an_instance_leads_to_its_template():
    template = f"{BASE}/x@.service"
    assert unit_links.template_of("x@1.service") == "x@.service"
    assert unit_links.template_of("x.service") == "x.service"
    enabled = unit_links.enabled("x@1.service", template, ["[Install]\nWantedBy=a.target\n"])
    assert enabled.links == {f"{BASE}/a.target.wants/x@1.service": template}


def test_a_template_is_enabled_as_its_default_instance():
    text = "[Install]\nWantedBy=a.target\nDefaultInstance=tty1\n"
    enabled = unit_links.enabled("x@.service", f"{BASE}/x@.service", [text])
    assert enabled.links == {f"{BASE}/a.target.wants/x@tty1.service": f"{BASE}/x@.service"}
    with pytest.raises(errors.Refused, match="it is a template without DefaultInstance="):
        unit_links.enabled("x@.service", f"{BASE}/x@.service", ["[Install]\nWantedBy=a.target\n"])


@pytest.mark.parametrize(
    "line", ["WantedBy=../x.target", "Alias=/etc/passwd", "RequiredBy=%i.target", "DefaultInstance=a/b"]
)
def test_what_is_no_name_of_a_unit_is_refused(line):
    with pytest.raises(errors.Refused) as caught:
        unit_links.enabled("a.service", PATH, [f"[Install]\n{line}\n"])
    assert caught.value.reason == unit_links.CANNOT_ENABLE
    assert line in caught.value.message
