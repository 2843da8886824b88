# SPDX-License-Identifier: Apache-2.0
"""`init --ca-cert --ca-key`: a control plane under a CA of the operator's, an intermediate one, on real processes.

Proves that machines join and agents run under it, with its pin; that the intermediate CA is trusted and its root is not; and
that what cannot sign is refused before anything is made.
"""

import datetime
import pathlib
import socket

import pytest

from handfast.bootstrap import kubeconfig
from handfast.pki import authority, keys, names, pem, pins, profiles
from tests.scenarios import up_world
from tests.scenarios.test_node_agent import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

NOW = datetime.datetime.now(datetime.UTC)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


class Company:
    """A root, and CAs below it."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.root = authority.self_signed_ca(names.Subject(common_name="company"), keys.generate(), NOW)

    def below(self, name: str) -> authority.Authority:
        """An intermediate CA, with its files."""
        key = keys.generate()
        subject = names.Subject(common_name=name)
        issued = self.root.issue(key.public, subject, names.Sans(), profiles.INTERMEDIATE_CA, NOW)
        (self.place / f"{name}.crt").write_bytes(issued.pem + self.root.pem)
        (self.place / f"{name}.key").write_bytes(key.to_pem())
        return authority.Authority(issued.der, key)

    def flags(self, certificate: str, key: str) -> tuple[object, ...]:
        return ("--ca-cert", self.place / f"{certificate}.crt", "--ca-key", self.place / f"{key}.key")


def test_machines_join_under_an_intermediate_ca(tmp_path: pathlib.Path) -> None:
    company = Company(tmp_path)
    ours, others = company.below("ours"), company.below("others")
    place, port = tmp_path / "data", f"127.0.0.1:{free_port()}"
    for _ in range(2):
        made = up_world.run("init", "--dir", place, "--listen", port, *company.flags("ours", "ours"))
        assert made.returncode == 0, made.stderr
    # The root is nobody's anchor.
    assert pem.certificates_from_pem((place / "pki" / "ca.crt").read_bytes()) == [ours.certificate.der]
    again = up_world.run("init", "--dir", place, "--listen", port, *company.flags("others", "others"))
    assert (again.returncode, again.stderr.splitlines()[-1]) == (1, "reason: CAExists")

    with up_world.Up(place, "--listen", port) as plane:
        plane.ready()
        (tmp_path / "machine").mkdir()
        machine = Machine(plane, tmp_path / "machine", "w1")
        assert str(pins.of_certificate(ours.certificate.der)) in machine.token()
        machine.joined()
        with machine.agent() as agent:
            agent.until_well()
        assert machine.node() is not None

        # An administrator by another CA below the same root is a stranger.
        key = keys.generate()
        master = names.Subject(common_name="mallory", organizations=("system:masters",))
        issued = others.issue(key.public, master, names.Sans(), profiles.CLIENT, NOW)
        text = kubeconfig.build(
            cluster="c",
            server=plane.facts["apiserver"],
            ca=ours.pem,
            user="mallory",
            client_certificate=issued.pem + others.pem + company.root.pem,
            client_key=key.to_pem(),
        )
        (tmp_path / "mallory.conf").write_text(text)
        refused = up_world.run("csr", "list", "--kubeconfig", tmp_path / "mallory.conf")
        assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, "reason: Unauthorized"), refused.stderr


@pytest.mark.parametrize(
    ("certificate", "key", "reason"),
    [("ours", "others", "BadAuthority"), ("leaf", "leaf", "BadAuthority"), ("junk", "ours", "")],
)
def test_what_cannot_sign_is_refused_before_anything_is_made(
    tmp_path: pathlib.Path, certificate: str, key: str, reason: str
) -> None:
    company = Company(tmp_path)
    for name in ("ours", "others"):
        company.below(name)
    made = keys.generate()
    leaf = company.root.issue(made.public, names.Subject(common_name="l"), names.Sans(), profiles.CLIENT, NOW)
    (tmp_path / "leaf.crt").write_bytes(leaf.pem)
    (tmp_path / "leaf.key").write_bytes(made.to_pem())
    (tmp_path / "junk.crt").write_bytes(b"junk")
    done = up_world.run("init", "--dir", tmp_path / "d", *company.flags(certificate, key))
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"reason: {reason}")
    assert "InternalError" not in done.stderr
    assert not (tmp_path / "d").exists()


def test_the_signing_settings_of_the_configuration_file_count(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "data"
    place.mkdir(mode=0o700)
    head = "apiVersion: handfast.dev/v1alpha1\nkind: Configuration\n"
    (place / "config.yaml").write_text(f"{head}clusterSigningDuration: 2h\n")
    with up_world.Up(place) as plane:
        plane.ready()
        (tmp_path / "machine").mkdir()
        leaf = Machine(plane, tmp_path / "machine", "w1").joined().current().leaf
        assert leaf.not_after <= datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=2)


@pytest.mark.parametrize("flag", ["--ca-cert", "--ca-key"])
def test_one_without_the_other_is_wrong_usage(tmp_path: pathlib.Path, flag: str) -> None:
    done = up_world.run("init", "--dir", tmp_path / "d", flag, tmp_path / "x")
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, "reason: Usage")
    assert not (tmp_path / "d").exists()
