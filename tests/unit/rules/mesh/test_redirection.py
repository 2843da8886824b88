# SPDX-License-Identifier: Apache-2.0
"""The redirect's rules: what goes to the proxy, what goes past it, and that nothing is made twice or left behind."""

from __future__ import annotations

from typing import Any

import pytest

from handfast.rules.mesh import redirection, sidecar

V4, V6 = redirection.Version
OTHERS = [":PREROUTING ACCEPT [0:0]", ":THEIRS - [0:0]", "-A PREROUTING -p tcp -j THEIRS", "-A THEIRS -j RETURN"]


def redirect(**fields: Any) -> redirection.Redirection:
    return redirection.Redirection(**{"inbound": 4143, "outbound": 4140, "user": sidecar.USER} | fields)


def lines(wanted: redirection.Redirection, version: redirection.Version = V4, saved: str = "") -> list[str]:
    first, *rows, last, end = redirection.applied(wanted, version, saved).split("\n")
    assert (first, last, end) == ("*nat", "COMMIT", "")
    return rows


def of(chain: str, rows: list[str]) -> list[str]:
    return [row.removeprefix(f"-A {chain} ") for row in rows if row.startswith(f"-A {chain} ")]


def test_all_tcp_goes_to_the_proxy_and_what_the_proxy_opens_does_not():
    rows = lines(redirect())
    assert of(redirection.INBOUND, rows) == ["-p tcp -j REDIRECT --to-ports 4143"]
    assert of(redirection.OUTBOUND, rows) == [
        f"-m owner --uid-owner {sidecar.USER} -j RETURN",
        "-o lo -j RETURN",
        "-p tcp -j REDIRECT --to-ports 4140",
    ]
    assert of("PREROUTING", rows) == ["-j HANDFAST_INBOUND"]
    assert of("OUTPUT", rows) == ["-j HANDFAST_OUTBOUND"]


def test_ports_that_are_skipped_come_before_the_redirect():
    skipped = redirection.ports(["4190, 4191", "25-30"])
    rows = lines(redirect(skip_inbound=skipped, skip_outbound=redirection.ports(["443"])))
    assert of(redirection.INBOUND, rows)[0] == "-p tcp -m multiport --dports 4190,4191,25:30 -j RETURN"
    assert of(redirection.OUTBOUND, rows)[2] == "-p tcp -m multiport --dports 443 -j RETURN"


@pytest.mark.parametrize("text", ["1,2,3,4,5,6,7,8,9,10,11,12,13,14,15", "1-2,3-4,5-6,7-8,9-10,11-12,13-14,15"])
def test_fifteen_ports_are_one_rule_and_one_more_is_another(text: str):
    assert len(of(redirection.INBOUND, lines(redirect(skip_inbound=redirection.ports([text]))))) == 2
    rows = of(redirection.INBOUND, lines(redirect(skip_inbound=redirection.ports([text, "70-80"]))))
    assert rows[1] == "-p tcp -m multiport --dports 70:80 -j RETURN"


@pytest.mark.parametrize("text", ["fe80::%eth0/64", "fe80::%x -j RETURN\n-A HANDFAST_OUTBOUND -j RETURN\n#/64"])
def test_no_rule_comes_in_with_a_subnet(text):
    with pytest.raises(redirection.BadRedirection, match="no subnet"):
        redirection.subnets([text])


def test_a_subnet_is_skipped_in_its_own_version_of_ip():
    wanted = redirect(subnets=redirection.subnets(["10.1.2.3/8,fd00::/8"]))
    assert of(redirection.INBOUND, lines(wanted, V4))[0] == "-s 10.0.0.0/8 -j RETURN"
    assert of(redirection.INBOUND, lines(wanted, V6))[0] == "-s fd00::/8 -j RETURN"


def test_what_is_there_already_is_made_anew_and_not_twice():
    wanted = redirect()
    once = lines(wanted)
    saved = "\n".join([*OTHERS, *once])
    again = lines(wanted, saved=saved)
    # The jumps that are there go, and the chains are emptied by being named.
    assert [row for row in again if row not in once] == [
        "-D PREROUTING -j HANDFAST_INBOUND",
        "-D OUTPUT -j HANDFAST_OUTBOUND",
    ]
    assert again[:2] == [":HANDFAST_INBOUND - [0:0]", ":HANDFAST_OUTBOUND - [0:0]"]


def test_undone_is_what_was_made_and_nothing_else():
    saved = "\n".join([*OTHERS, *lines(redirect())])
    assert redirection.undone(saved).split("\n") == [
        "*nat",
        "-D PREROUTING -j HANDFAST_INBOUND",
        "-D OUTPUT -j HANDFAST_OUTBOUND",
        "-F HANDFAST_INBOUND",
        "-F HANDFAST_OUTBOUND",
        "-X HANDFAST_INBOUND",
        "-X HANDFAST_OUTBOUND",
        "COMMIT",
        "",
    ]
    assert redirection.undone("\n".join(OTHERS)) == ""


def test_a_jump_that_somebody_else_made_goes_with_its_chain():
    saved = ":HANDFAST_INBOUND - [0:0]\n-A THEIRS -p tcp -m comment --comment x -j HANDFAST_INBOUND\n"
    assert "-D THEIRS -p tcp -m comment --comment x -j HANDFAST_INBOUND" in redirection.undone(saved)


@pytest.mark.parametrize("text", ["0", "65536", "9-8", "http", "80;81", "-1"])
def test_what_is_no_port_is_refused(text: str):
    with pytest.raises(redirection.BadRedirection, match="no port"):
        redirection.ports(["80", text])


@pytest.mark.parametrize("text", ["10.0.0.0/33", "shop", "10.0.0.0/8 -j ACCEPT"])
def test_what_is_no_subnet_is_refused(text: str):
    with pytest.raises(redirection.BadRedirection, match="no subnet"):
        redirection.subnets([text])


@pytest.mark.parametrize("user", [0, -1])
def test_the_proxy_is_not_root(user: int):
    with pytest.raises(redirection.BadRedirection, match="everything of that user's") as refused:
        redirect(user=user)
    assert "--proxy-uid" in (refused.value.hint or "")


def test_one_port_cannot_be_for_both():
    with pytest.raises(redirection.BadRedirection, match="inbound and for outbound"):
        redirect(outbound=4143)
