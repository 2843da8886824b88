# SPDX-License-Identifier: Apache-2.0
"""With which CA certificates are signed, as the flags say it; the files are not opened here."""

from __future__ import annotations

import datetime
import pathlib

import click
import pytest
from click import testing

from handfast.assembly import layout
from handfast.cli import output, signing_flags
from handfast.rules import signers


def parsed(*arguments: str) -> dict[str, str]:
    """The flags as a command gets them."""
    found: dict[str, str] = {}

    @click.command()
    @signing_flags.options
    @click.option("--other")
    def command(**flags: str) -> None:
        found.update(signing_flags.taken(flags))
        assert set(flags) == {"other"}

    done = testing.CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return found


@pytest.fixture
def place(tmp_path: pathlib.Path) -> layout.Layout:
    return layout.Layout.at(tmp_path)


def test_the_directorys_own_signs_for_all(place: layout.Layout) -> None:
    assert signing_flags.signing({}, place) is None
    place.pki.mkdir()
    place.ca_certificate.touch()
    assert signing_flags.signing({}, place) is None
    place.ca_key.touch()
    found = signing_flags.signing({}, place)
    assert found is not None
    assert found.files.keys() == signers.SIGNERS
    (own,) = set(found.files.values())
    assert (own.certificate, own.key, own.bundle) == (place.ca_certificate, place.ca_key, True)
    assert found.longest == datetime.timedelta(hours=8760)


def test_one_pair_for_all(place: layout.Layout) -> None:
    given = parsed("--cluster-signing-cert-file", "/c", "--cluster-signing-key-file", "/k")
    found = signing_flags.signing(given, place)
    assert found is not None
    assert found.files.keys() == signers.SIGNERS
    (own,) = set(found.files.values())
    assert (str(own.certificate), str(own.key), own.bundle) == ("/c", "/k", False)


@pytest.mark.parametrize(
    ("word", "signer"),
    [
        ("kubelet-serving", signers.KUBELET_SERVING),
        ("kubelet-client", signers.KUBELET_CLIENT),
        ("kube-apiserver-client", signers.KUBE_APISERVER_CLIENT),
        ("legacy-unknown", signers.LEGACY_UNKNOWN),
    ],
)
def test_a_pair_for_each(place: layout.Layout, word: str, signer: str) -> None:
    given = parsed(f"--cluster-signing-{word}-cert-file", "/c", f"--cluster-signing-{word}-key-file", "/k")
    found = signing_flags.signing(given, place)
    assert found is not None
    assert list(found.files) == [signer]
    with pytest.raises(output.Usage, match="at the same time"):
        signing_flags.signing({**given, "cluster_signing_cert_file": "/c", "cluster_signing_key_file": "/k"}, place)


@pytest.mark.parametrize("word", ["", "kubelet-serving-"])
@pytest.mark.parametrize(("given", "missing"), [("cert", "key"), ("key", "cert")])
def test_a_half_is_refused(place: layout.Layout, word: str, given: str, missing: str) -> None:
    flags = parsed(f"--cluster-signing-{word}{given}-file", "/x")
    says = f"--cluster-signing-{word}{given}-file is given without --cluster-signing-{word}{missing}-file"
    with pytest.raises(output.Usage, match=says):
        signing_flags.signing(flags, place)


@pytest.mark.parametrize(
    ("arguments", "hours"),
    [
        pytest.param((), 8760, id="default"),
        pytest.param(("--cluster-signing-duration", "24h"), 24, id="hours"),
        pytest.param(("--cluster-signing-duration", "365d"), 8760, id="days"),
        pytest.param(("--cluster-signing-duration", "10m"), 1 / 6, id="the shortest"),
    ],
)
def test_durations(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], hours: float) -> None:
    assert signing_flags.duration(parsed(*arguments)) == datetime.timedelta(hours=hours)
    assert capsys.readouterr().err == ""


def test_the_older_name(capsys: pytest.CaptureFixture[str]) -> None:
    older = "--experimental-cluster-signing-duration"
    assert signing_flags.duration(parsed(older, "1h")) == datetime.timedelta(hours=1)
    assert capsys.readouterr().err == f"warning: {older} is deprecated; write --cluster-signing-duration\n"
    with pytest.raises(output.Usage, match="is the older name of --cluster-signing-duration"):
        signing_flags.duration(parsed(older, "1h", "--cluster-signing-duration", "1h"))


@pytest.mark.parametrize("text", ["0", "9m", "1s", "-1h", "soon", ""])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(output.Usage, match="--cluster-signing-duration: "):
        signing_flags.duration(parsed("--cluster-signing-duration", text))
