# SPDX-License-Identifier: Apache-2.0
"""Certificates are signed by another CA than the API server trusts: `join` says so, on real processes.

Proves that the client is told in TLS, that `join` ends at once with its own reason, and names both CAs.
"""

import datetime
import pathlib
import subprocess

import pytest

from handfast.controllers.certificates import signer as csr_signer
from handfast.pki import authority, keys, names, pem, pins
from tests.scenarios import up_world
from tests.scenarios.test_node_agent import Machine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


def test_join_names_the_ca_that_signed_and_the_one_that_should_have(tmp_path: pathlib.Path) -> None:
    key = keys.generate()
    now = datetime.datetime.now(datetime.UTC)
    wrong = authority.self_signed_ca(names.Subject(common_name="wrong-ca"), key, now)
    (tmp_path / "wrong.crt").write_bytes(wrong.pem)
    (tmp_path / "wrong.key").write_bytes(key.to_pem())
    (tmp_path / "wrong.key").chmod(0o600)
    chosen = f"*,bootstrapsigner,tokencleaner,-{csr_signer.NAME}"
    with up_world.Up(tmp_path / "data", "--controllers", chosen) as plane:
        plane.ready()
        words = ["serve", "controllers", "--kubeconfig", plane.directory / "admin.conf", "--dir", tmp_path / "none"]
        words += ["--controllers", csr_signer.NAME, "--admin-listen", "127.0.0.1:0"]
        words += [
            "--cluster-signing-cert-file",
            tmp_path / "wrong.crt",
            "--cluster-signing-key-file",
            tmp_path / "wrong.key",
        ]
        with (tmp_path / "signer.log").open("wb") as log:
            signer = subprocess.Popen([*up_world.COMMAND, *map(str, words)], stderr=log, env=up_world.environment())
        try:
            (tmp_path / "machine").mkdir()
            done = Machine(plane, tmp_path / "machine", "w1").join()
        finally:
            signer.terminate()
            signer.wait(30)
        ca = (plane.directory / "pki" / "ca.crt").read_bytes()
        assert done.returncode == 1, f"{done.stderr}\n{(tmp_path / 'signer.log').read_text()}"
        assert done.stderr.splitlines()[-1] == "reason: CertificateRefused"
        assert "with the alert 'unknown ca'" in done.stderr
        assert "it was signed by CN=wrong-ca, and should have been by the cluster's CA, CN=handfast-ca (" in done.stderr
        assert str(pins.of_certificate(pem.certificates_from_pem(ca)[0])) in done.stderr
        assert "--cluster-signing-cert-file" in done.stderr
        refused = [line for line in plane.events() if line["event"] == "handshake refused"]
        # The HTTP library asks once more by itself.
        assert {line["reason"] for line in refused} == {"UnknownAuthority"}
