# SPDX-License-Identifier: Apache-2.0
"""With which CA certificates are signed, as the flags say it; the files are not opened here."""

from __future__ import annotations

import datetime
import pathlib
from typing import Any

import click
import pytest

from handfast.api import signer_names
from handfast.assembly import config
from handfast.cli import output, settings, signing_flags
from handfast.datadir import layout


def chosen(*arguments: str, text: str = "", root: pathlib.Path = pathlib.Path("/nowhere")) -> config.Configuration:
    """What a command with these flags gets."""
    found: list[config.Configuration] = []

    @click.command()
    @settings.setting_options("listen", *config.SIGNING)
    @signing_flags.options
    def command(**flags: Any) -> None:
        signing_flags.take_older_name(flags)
        place = layout.Layout.at(root)
        if text:
            place.config.write_text(f"apiVersion: {config.API_VERSION}\nkind: {config.KIND}\n{text}")
        found.append(settings.load(place, flags, None).configuration)

    command.main(list(arguments), standalone_mode=False)
    return found[0]


@pytest.fixture
def place(tmp_path: pathlib.Path) -> layout.Layout:
    return layout.Layout.at(tmp_path)


def test_the_directorys_own_signs_for_all(place: layout.Layout) -> None:
    assert signing_flags.signing(chosen(), place) is None
    place.pki.mkdir()
    place.ca_certificate.touch()
    assert signing_flags.signing(chosen(), place) is None
    place.ca_key.touch()
    found = signing_flags.signing(chosen(), place)
    assert found is not None
    assert found.files.keys() == set(signer_names.SIGNERS)
    (own,) = set(found.files.values())
    assert (own.certificate, own.key, own.bundle) == (place.ca_certificate, place.ca_key, True)
    assert found.longest == datetime.timedelta(hours=8760)


def test_one_pair_for_all(place: layout.Layout) -> None:
    given = chosen("--cluster-signing-cert-file", "/c", "--cluster-signing-key-file", "/k")
    found = signing_flags.signing(given, place)
    assert found is not None
    assert found.files.keys() == set(signer_names.SIGNERS)
    (own,) = set(found.files.values())
    assert (str(own.certificate), str(own.key), own.bundle) == ("/c", "/k", False)


@pytest.mark.parametrize(
    ("word", "signer"),
    [
        ("kubelet-serving", signer_names.KUBELET_SERVING),
        ("kubelet-client", signer_names.KUBELET_CLIENT),
        ("kube-apiserver-client", signer_names.KUBE_APISERVER_CLIENT),
        ("legacy-unknown", signer_names.LEGACY_UNKNOWN),
    ],
)
def test_a_pair_for_each(place: layout.Layout, word: str, signer: str) -> None:
    words = (f"--cluster-signing-{word}-cert-file", "/c", f"--cluster-signing-{word}-key-file", "/k")
    found = signing_flags.signing(chosen(*words), place)
    assert found is not None
    assert list(found.files) == [signer]
    both = chosen(*words, "--cluster-signing-cert-file", "/c", "--cluster-signing-key-file", "/k")
    with pytest.raises(output.Usage, match="at the same time"):
        signing_flags.signing(both, place)


@pytest.mark.parametrize("word", ["", "kubelet-serving-"])
@pytest.mark.parametrize(("given", "missing"), [("cert", "key"), ("key", "cert")])
def test_a_half_is_refused(place: layout.Layout, word: str, given: str, missing: str) -> None:
    flags = chosen(f"--cluster-signing-{word}{given}-file", "/x")
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
def test_the_duration_of_certificates_is_a_year_or_what_the_flag_says(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], hours: float
) -> None:
    assert chosen(*arguments).cluster_signing_duration == datetime.timedelta(hours=hours)
    assert capsys.readouterr().err == ""


def test_the_older_name(capsys: pytest.CaptureFixture[str]) -> None:
    older = "--experimental-cluster-signing-duration"
    assert chosen(older, "1h").cluster_signing_duration == datetime.timedelta(hours=1)
    assert capsys.readouterr().err == f"warning: {older} is deprecated; write --cluster-signing-duration\n"
    with pytest.raises(output.Usage, match="is the older name of --cluster-signing-duration"):
        chosen(older, "1h", "--cluster-signing-duration", "1h")


@pytest.mark.parametrize("text", ["0", "9m", "1s", "-1h", "soon", ""])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(config.Invalid, match="--cluster-signing-duration: ") as caught:
        chosen("--cluster-signing-duration", text)
    assert caught.value.from_flag


def test_files_are_named_from_here_or_from_the_directory(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    text = "clusterSigningDuration: 24h\nclusterSigningCertFile: own/ca.crt\nclusterSigningKeyFile: own/ca.key\n"
    found = chosen("--cluster-signing-key-file", "typed.key", text=text, root=tmp_path)
    assert found.cluster_signing_duration == datetime.timedelta(days=1)
    assert found.cluster_signing_cert_file == str(tmp_path / "own" / "ca.crt")
    assert found.cluster_signing_key_file == "/typed.key"
