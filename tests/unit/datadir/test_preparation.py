# SPDX-License-Identifier: Apache-2.0
"""The data directory: made once, resumed, renewed in time, and refused rather than silently replaced."""

import contextlib
import datetime as dt
import socket
import stat
import threading

import pytest

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.datadir import layout, preparation
from handfast.pki import authority, bundles, certificates, chains, keys, names, pem, profiles, seal
from handfast.runtime.addresses import Address

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
SERVER = Address("127.0.0.1", 6443)
EVERYTHING = [
    ("pki/ca.key", "created"),
    ("pki/ca.crt", "created"),
    ("encryption.key", "created"),
    ("pki/sa.key", "created"),
    ("pki/sa.pub", "created"),
    ("pki/apiserver.key", "created"),
    ("pki/apiserver.crt", "created"),
    ("controllers.conf", "created"),
    ("admin.conf", "created"),
    ("config.yaml", "created"),
]


def prepare(place, **changes):
    return preparation.prepare(
        place,
        **{
            "server": SERVER,
            "now": NOW,
            "settings": "apiVersion: handfast.dev/v1alpha1\nkind: Configuration\n",
            **changes,
        },
    )


@pytest.fixture
def place(tmp_path):
    return layout.Layout.at(tmp_path / "data")


@pytest.fixture
def made(place):
    assert prepare(place) == EVERYTHING
    return place


def certificate_at(path):
    return certificates.read(pem.one(path.read_bytes(), pem.CERTIFICATE))


def snapshot(place):
    return {str(path): path.read_bytes() for path in place.root.rglob("*") if path.is_file()}


def refused(place, reason="DataDirectoryInconsistent", **changes):
    before = snapshot(place)
    with pytest.raises(errors.Refused) as caught:
        prepare(place, **changes)
    assert caught.value.reason == reason
    assert snapshot(place) == before
    return caught.value


class TestFirstStart:
    def test_nobody_else_can_open_a_file_or_directory(self, made):
        for path in made.root.rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        assert stat.S_IMODE(made.root.stat().st_mode) == 0o700

    @pytest.mark.parametrize(
        "name",
        [
            *("localhost", "127.0.0.1", "::1", "10.96.0.1", "kubernetes", "kubernetes.default"),
            *("kubernetes.default.svc", "kubernetes.default.svc.cluster.local"),
        ],
    )
    def test_the_serving_certificate_is_good_for_every_name(self, made, name):
        roots = bundles.TrustBundle.from_pem(made.ca_certificate.read_bytes())
        chains.verify([certificate_at(made.apiserver_certificate).der], roots, chains.Server(name), NOW)

    @pytest.mark.parametrize(
        "file, user, groups",
        [
            ("admin_kubeconfig", "kubernetes-admin", ("system:masters",)),
            ("controllers_kubeconfig", "system:kube-controller-manager", ()),
        ],
    )
    def test_kubeconfigs_prove_their_users(self, made, file, user, groups):
        found = kubeconfig.parse(getattr(made, file).read_text())
        assert found.cluster.server == "https://127.0.0.1:6443"
        assert found.cluster.certificate_authority_data == made.ca_certificate.read_bytes()
        assert found.user is not None
        chain = pem.certificates_from_pem(found.user.client_certificate_data or b"")
        roots = bundles.TrustBundle.from_pem(made.ca_certificate.read_bytes())
        proved = chains.verify(chain, roots, chains.Client(), NOW)
        assert (proved.subject.common_name, proved.subject.organizations) == (user, groups)

    def test_the_seal_key_is_one(self, made):
        assert seal.Sealer.from_text(made.encryption_key.read_text()).active == "key-20300101"


class TestServingNames:
    def test_advertised_and_listening_hosts_but_no_wildcards(self):
        found = preparation.serving_names(
            Address("0.0.0.0", 1), [Address("API.example.com", 1), Address("192.0.2.7", 2)], "host-1"
        )
        assert "0.0.0.0" not in map(str, found.ip)
        assert "192.0.2.7" in map(str, found.ip)
        assert {"api.example.com", "host-1"} <= set(found.dns)
        assert len(set(found.dns)) == len(found.dns)

    def test_a_machine_without_a_good_name(self, place, monkeypatch):
        monkeypatch.setattr(socket, "gethostname", lambda: "not a name")
        assert prepare(place) == EVERYTHING
        assert "not a name" not in certificate_at(place.apiserver_certificate).sans.dns


class TestOutlook:
    def test_two_thirds_of_a_life_from_now(self, made):
        seconds, warning = preparation.outlook(made, NOW)
        life = dt.timedelta(days=365).total_seconds()
        assert seconds == pytest.approx(life * 2 / 3, abs=1000)
        assert warning is None

    def test_what_is_overdue_is_due_now(self, made):
        assert preparation.outlook(made, NOW + dt.timedelta(days=300))[0] == 0.0

    @pytest.mark.parametrize("years, warned", [(9, False), (9.8, True)])
    def test_the_end_of_the_ca_is_told_in_time(self, made, years, warned):
        _, warning = preparation.outlook(made, NOW + dt.timedelta(days=365 * years))
        assert (warning is not None) == warned
        assert not warned or "run `handfast ca rotate`" in str(warning)


class TestSeveralCAs:
    def test_the_key_tells_who_signs(self, made):
        key = keys.generate()
        other = authority.self_signed_ca(names.Subject(common_name="other"), key, NOW)
        for text in (made.ca_certificate.read_bytes() + other.pem, other.pem + made.ca_certificate.read_bytes()):
            made.ca_certificate.write_bytes(text)
            assert [path for path, _ in prepare(made)] in (["controllers.conf", "admin.conf"], [])
        assert preparation.read_trust(made).signer.certificate.subject.common_name == "handfast-ca"
        made.ca_key.write_bytes(key.to_pem())
        made.rotation("ca").mkdir()
        assert prepare(made) == [], "certificates of either are good, while a rotation is under way here"
        done = prepare(made, now=NOW + dt.timedelta(days=300))
        assert [path for path, _ in done] == ["pki/apiserver.crt", "controllers.conf", "admin.conf"]
        found = certificate_at(made.apiserver_certificate)
        chains.verify(
            [found.der],
            bundles.TrustBundle.of([other.certificate.der]),
            chains.Server("localhost"),
            NOW + dt.timedelta(days=300),
        )

    def test_a_key_of_none_of_them_is_refused(self, made):
        made.ca_certificate.write_bytes(made.ca_certificate.read_bytes() * 2)
        made.ca_key.write_bytes(keys.generate().to_pem())
        assert "none of the 2 CA certificates" in refused(made).message

    def test_other_keys_of_tokens_may_stand_beside_ours(self, made):
        other = pem.encode(pem.PUBLIC_KEY, keys.generate().public.spki)
        made.service_account_public_key.write_bytes(other + made.service_account_public_key.read_bytes())
        assert prepare(made) == []
        made.service_account_public_key.write_bytes(other)
        refused(made)

    @pytest.mark.parametrize("text", [b"", b"hello", pem.encode("PRIVATE KEY", b"x")])
    def test_what_is_no_public_key_is_refused(self, made, text):
        made.service_account_public_key.write_bytes(text)
        refused(made)


class TestBeingServed:
    def test_unfinished_writes_of_others_are_left_alone(self, made):
        for directory in (made.root, made.pki):
            (directory / ".x.tmp").touch()
        prepare(made, again=True)
        assert [(directory / ".x.tmp").exists() for directory in (made.root, made.pki)] == [True, True]
        prepare(made)
        assert [(directory / ".x.tmp").exists() for directory in (made.root, made.pki)] == [False, False]

    def test_whoever_changes_keys_is_waited_for(self, made):
        other = contextlib.ExitStack()
        other.enter_context(preparation.locked(made))
        order = []

        def let_go():
            order.append("the other is done")
            other.close()

        timer = threading.Timer(0.2, let_go)
        timer.start()
        with preparation.locked(made, patience=30.0):
            order.append("it is our turn")
        timer.join()
        assert order == ["the other is done", "it is our turn"]

    def test_whoever_changes_keys_for_too_long_is_not_waited_for(self, made):
        with preparation.locked(made), pytest.raises(errors.Refused) as caught, preparation.locked(made, patience=0.1):
            pass
        assert caught.value.reason == "DirectoryInUse"


class TestLaterStarts:
    def test_nothing_changes(self, made):
        before = snapshot(made)
        assert prepare(made) == []
        assert snapshot(made) == before

    def test_a_new_address_renews_the_certificate_for_the_same_key(self, made):
        key = made.apiserver_key.read_bytes()
        assert prepare(made, advertise=[Address("192.0.2.9", 6443)]) == [("pki/apiserver.crt", "renewed")]
        assert made.apiserver_key.read_bytes() == key
        assert "192.0.2.9" in map(str, certificate_at(made.apiserver_certificate).sans.ip)
        assert prepare(made) == [], "names that are no longer needed do no harm"

    def test_a_new_port_rewrites_the_kubeconfigs_only(self, made):
        done = prepare(made, server=Address("127.0.0.1", 7443))
        assert done == [("controllers.conf", "renewed"), ("admin.conf", "renewed")]
        assert "https://127.0.0.1:7443" in made.admin_kubeconfig.read_text()

    @pytest.mark.parametrize("days, renewed", [(200, False), (300, True), (400, True)])
    def test_what_runs_out_is_renewed(self, made, days, renewed):
        done = prepare(made, now=NOW + dt.timedelta(days=days))
        wanted = [("pki/apiserver.crt", "renewed"), ("controllers.conf", "renewed"), ("admin.conf", "renewed")]
        assert done == (wanted if renewed else [])

    def test_after_the_end_of_the_ca_a_new_certificate_of_its_key_is_enough(self, made):
        later = NOW + dt.timedelta(days=3700)
        key = keys.private_from_pem(made.ca_key.read_bytes())
        renewed = authority.self_signed_ca(names.Subject(common_name=preparation.CA_NAME), key, later)
        made.ca_certificate.write_bytes(renewed.pem)
        done = prepare(made, now=later)
        assert done == [("pki/apiserver.crt", "renewed"), ("controllers.conf", "renewed"), ("admin.conf", "renewed")]
        assert prepare(made, now=later) == []

    def test_what_was_copied_from_a_server_that_rotates_its_ca_is_followed(self, made):
        """Before the switch the new CA is trusted only; after it, what is shown and logged in with is of the new one."""
        old = made.ca_key.read_bytes()
        key = keys.generate()
        new = authority.self_signed_ca(names.Subject(common_name=preparation.CA_NAME), key, NOW)
        made.ca_certificate.write_bytes(made.ca_certificate.read_bytes() + new.pem)
        assert prepare(made) == [("controllers.conf", "renewed"), ("admin.conf", "renewed")]
        made.ca_key.write_bytes(key.to_pem())
        # While a rotation is under way here, its own step does it.
        made.rotation("ca").mkdir()
        assert prepare(made) == []
        made.rotation("ca").rmdir()
        done = prepare(made)
        assert done == [("pki/apiserver.crt", "renewed"), ("controllers.conf", "renewed"), ("admin.conf", "renewed")]
        trusted = bundles.TrustBundle.of([new.certificate.der])
        chains.verify([certificate_at(made.apiserver_certificate).der], trusted, chains.Server("localhost"), NOW)
        # So the old one can be retired.
        made.ca_certificate.write_bytes(new.pem)
        assert prepare(made) == [("controllers.conf", "renewed"), ("admin.conf", "renewed")]
        assert made.ca_key.read_bytes() != old

    def test_an_edited_configuration_is_kept(self, made):
        made.config.write_text("apiVersion: handfast.dev/v1alpha1\nkind: Configuration\nlogLevel: debug\n")
        assert prepare(made) == []
        assert "debug" in made.config.read_text()

    def test_another_users_kubeconfig_is_written_again(self, made):
        made.admin_kubeconfig.write_bytes(made.controllers_kubeconfig.read_bytes())
        assert prepare(made) == [("admin.conf", "renewed")]
        assert made.admin_kubeconfig.read_bytes() != made.controllers_kubeconfig.read_bytes()
        assert prepare(made) == []

    def test_a_kubeconfig_of_another_ca_is_written_again(self, made, tmp_path):
        other = layout.Layout.at(tmp_path / "other")
        prepare(other)
        made.admin_kubeconfig.write_bytes(other.admin_kubeconfig.read_bytes())
        assert prepare(made) == [("admin.conf", "renewed")]
        assert prepare(made) == []

    def test_a_forged_client_certificate_is_written_again(self, made, tmp_path):
        other = layout.Layout.at(tmp_path / "other")
        prepare(other)
        forged = kubeconfig.parse(other.admin_kubeconfig.read_text())
        assert forged.user is not None
        text = kubeconfig.build(
            cluster="handfast",
            server="https://127.0.0.1:6443",
            ca=made.ca_certificate.read_bytes(),
            user="kubernetes-admin",
            client_certificate=forged.user.client_certificate_data or b"",
            client_key=forged.user.client_key_data or b"",
        )
        made.admin_kubeconfig.write_text(text)
        assert prepare(made) == [("admin.conf", "renewed")]
        assert prepare(made) == []


class TestCutShort:
    """A crash after any of the files of the first start, in the order of their writing."""

    @pytest.mark.parametrize("written", range(len(EVERYTHING) + 1))
    def test_is_completed(self, made, written):
        kept = {path for path, _ in EVERYTHING[:written]}
        for path, _ in EVERYTHING[written:]:
            (made.root / path).unlink()
        (made.pki / ".ca.crt.abc.tmp").write_bytes(b"half")
        before = {path: (made.root / path).read_bytes() for path in kept}
        assert prepare(made) == EVERYTHING[written:]
        assert {path: (made.root / path).read_bytes() for path in kept} == before
        assert not (made.pki / ".ca.crt.abc.tmp").exists()
        assert prepare(made) == []


class TestRefused:
    @pytest.mark.parametrize("lost", [["ca.key"], ["ca.crt"], ["ca.key", "ca.crt"]])
    def test_a_lost_ca(self, made, lost):
        for name in lost:
            (made.pki / name).unlink()
        error = refused(made, "DataDirectoryIncomplete")
        assert any(str(made.pki / name) in error.message for name in lost)
        assert "backup" in (error.hint or "")

    def test_a_lost_ca_beside_a_store_alone(self, place):
        place.root.mkdir()
        place.store("store.db").write_bytes(b"")
        assert "store.db is there" in refused_on_new(place).message

    def test_a_ca_key_of_another_certificate(self, made):
        made.ca_key.write_bytes(keys.generate().to_pem())
        error = refused(made)
        assert str(made.ca_key) in error.message
        assert "do not belong together" in error.message

    def test_an_expired_ca(self, made):
        error = refused(made, "CertificateExpired", now=NOW + dt.timedelta(days=3660))
        assert str(made.ca_certificate) in error.message

    @pytest.mark.parametrize(
        "name",
        [
            "pki/ca.key",
            "pki/ca.crt",
            "encryption.key",
            "pki/sa.key",
            "pki/apiserver.key",
            "pki/apiserver.crt",
            "admin.conf",
        ],
    )
    @pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe", pem.encode(pem.CERTIFICATE, b"not DER")])
    def test_a_broken_file_is_named(self, made, name, content):
        path = made.root / name
        path.write_bytes(content)
        error = refused(made)
        assert str(path) in error.message
        assert error.hint

    def test_a_lost_seal_key_beside_a_store(self, made):
        made.encryption_key.unlink()
        made.store("store.db").write_bytes(b"")
        error = refused(made, "DataDirectoryIncomplete")
        assert str(made.encryption_key) in error.message

    def test_a_lost_signing_key_of_service_accounts(self, made):
        made.service_account_key.unlink()
        error = refused(made, "DataDirectoryIncomplete")
        assert str(made.service_account_key) in error.message
        assert error.hint

    def test_the_halves_of_that_key_belong_together(self, made):
        made.service_account_key.write_bytes(keys.generate().to_pem())
        assert str(made.service_account_key) in refused(made).message

    def test_a_directory_from_before_there_were_service_account_tokens(self, made):
        made.service_account_key.unlink()
        made.service_account_public_key.unlink()
        assert prepare(made) == [("pki/sa.key", "created"), ("pki/sa.pub", "created")]

    def test_a_lost_serving_key(self, made):
        made.apiserver_key.unlink()
        error = refused(made, "DataDirectoryIncomplete")
        assert str(made.apiserver_key) in error.message
        assert f"remove {made.apiserver_certificate}" in (error.hint or "")

    def test_a_serving_key_of_another_certificate(self, made):
        made.apiserver_key.write_bytes(keys.generate().to_pem())
        assert str(made.apiserver_key) in refused(made).message

    def test_a_serving_certificate_of_another_ca(self, made):
        other = authority.self_signed_ca(names.Subject(common_name="other"), keys.generate(), NOW)
        key = keys.private_from_pem(made.apiserver_key.read_bytes())
        sans = names.make_sans(dns=["localhost"])
        issued = other.issue(key.public, names.Subject(common_name="x"), sans, profiles.APISERVER_SERVING, NOW)
        made.apiserver_certificate.write_bytes(issued.pem)
        assert str(made.apiserver_certificate) in refused(made).message

    def test_a_kubeconfig_without_a_certificate(self, made):
        found = kubeconfig.parse(made.admin_kubeconfig.read_text())
        made.admin_kubeconfig.write_text(
            kubeconfig.render(kubeconfig.Kubeconfig(context=found.context, cluster=found.cluster, user=None))
        )
        assert str(made.admin_kubeconfig) in refused(made).message

    @pytest.mark.parametrize("name", ["pki/ca.key", "encryption.key", "pki/sa.key", "pki/apiserver.key", "admin.conf"])
    def test_a_private_file_that_others_may_open(self, made, name):
        (made.root / name).chmod(0o644)
        error = refused(made, "FileNotPrivate")
        assert str(made.root / name) in error.message
        assert "chmod 600" in (error.hint or "")

    @pytest.mark.parametrize("name", [".", "pki"])
    def test_a_directory_that_others_may_write_to(self, made, name):
        (made.root / name).chmod(0o770)
        with pytest.raises(errors.Refused, match="can be written by others") as caught:
            prepare(made)
        assert caught.value.reason == "DirectoryNotPrivate"


def refused_on_new(place):
    with pytest.raises(errors.Refused) as caught:
        prepare(place)
    assert caught.value.reason == "DataDirectoryIncomplete"
    return caught.value


class TestMachineConfigurations:
    """The pair and the kubeconfig of the machine-config server."""

    LISTEN = Address("192.0.2.5", 22623)
    MORE = [  # noqa: RUF012 - read only
        ("pki/machine-config.key", "created"),
        ("pki/machine-config.crt", "created"),
        ("machine-config.conf", "created"),
    ]

    def test_an_existing_directory_gets_them_and_nothing_else_changes(self, made):
        before = snapshot(made)
        assert prepare(made, machine_config=self.LISTEN) == self.MORE
        after = snapshot(made)
        assert {path: after[path] for path in before} == before
        assert prepare(made, machine_config=self.LISTEN) == []
        held = kubeconfig.parse(made.machine_config_kubeconfig.read_text())
        assert held.user is not None
        assert certificates.read(
            pem.one(held.user.client_certificate_data or b"", pem.CERTIFICATE)
        ).subject == names.Subject(common_name="system:machine-config-server")

    def test_the_certificate_names_its_hosts_and_not_the_service_of_the_api_server(self, made):
        prepare(made, machine_config=self.LISTEN)
        texts = certificate_at(made.machine_config_certificate).sans.texts()
        assert {"DNS:localhost", "IP:127.0.0.1", "IP:192.0.2.5"} <= set(texts)
        assert not {"DNS:kubernetes", "DNS:kubernetes.default.svc", "IP:10.96.0.1"} & set(texts)

    def test_they_are_renewed_also_where_machines_are_not_admitted_any_more(self, made):
        prepare(made, machine_config=self.LISTEN)
        later = NOW + dt.timedelta(days=300)
        done = [path for path, _ in prepare(made, now=later)]
        assert {"pki/machine-config.crt", "machine-config.conf"} <= set(done)

    def test_a_certificate_without_its_key_is_refused(self, made):
        prepare(made, machine_config=self.LISTEN)
        made.machine_config_key.unlink()
        with pytest.raises(errors.Refused, match=r"machine-config\.key is missing"):
            prepare(made, machine_config=self.LISTEN)
