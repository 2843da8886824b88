# SPDX-License-Identifier: Apache-2.0
"""A rotation on a real directory, with a stand-in for the objects of its API: order, waiting, crashes, the way back.

Against a real API, under load: `tests/scenarios/test_ca_rotation.py`.
"""

import asyncio
import contextlib
import datetime
import os
import pathlib
import signal
import stat

import pytest

from handfast import errors
from handfast.bootstrap import kubeconfig
from handfast.client import issued_certificates
from handfast.datadir import layout, preparation, trust_overview
from handfast.datadir import own_certificates as own
from handfast.datadir.rotation import sequence, steps, trust_files, trust_objects
from handfast.pki import authority, bundles, certificates, chains, jwt, keys, names, pem
from handfast.rules import trust_rotation as rotation
from handfast.rules.ledger import entries
from handfast.rules.trust_rotation import OF_DIRECTORY, Step, Target
from handfast.runtime import files
from handfast.runtime.addresses import Address
from tests.world.clock import MovableClock

pytestmark = pytest.mark.slow
START = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
SERVER = Address("127.0.0.1", 6443)
DAY = datetime.timedelta(days=1)


class Objects:
    """The API's half: client CAs, and what the controllers and the server tell of the files, if they notice them."""

    def __init__(self, place, monkeypatch):
        self.place = place
        self.client_cas = self.file()
        self.notices = True
        self.entries = []
        self.running: frozenset[str] = frozenset()
        self.tokens = []
        self.written = 0
        for name in (
            "trust_client_ca",
            "distrust_client_ca",
            "outdated",
            "publish",
            "published_keys",
            "served_certificate",
        ):
            monkeypatch.setattr(trust_objects, name, getattr(self, name))
        monkeypatch.setattr(issued_certificates, "entries", self.all_entries)
        monkeypatch.setattr(trust_objects, "old_tokens", self.all_tokens)
        monkeypatch.setattr(trust_objects, "running_nodes", self.running_nodes)

    def file(self):
        return bundles.TrustBundle.from_pem(self.place.ca_certificate.read_bytes())

    async def trust_client_ca(self, client, der):
        before, self.client_cas = self.client_cas, self.client_cas.add(der)
        return before != self.client_cas

    async def distrust_client_ca(self, client, leaving):
        if not self.client_cas.of_key(*leaving):
            return False
        self.client_cas = self.client_cas.retire(*leaving)
        return True

    async def outdated(self, client, *, wanted="", unwanted=()):
        if self.client_cas.of_key(*unwanted):
            return ["kube-system/extension-apiserver-authentication"]
        return [] if self.notices else ["default/kube-root-ca.crt"] * 7

    async def publish(self, client, text):
        self.written += 1

    async def published_keys(self, client):
        found = preparation.public_keys(self.place.service_account_public_key)
        return frozenset(map(jwt.key_id, found)) if self.notices else frozenset()

    async def served_certificate(self, place):
        return own.certificate(self.place.apiserver_certificate).der if self.notices else b""

    async def all_entries(self, client):
        return self.entries

    async def all_tokens(self, client, staying):
        return self.tokens

    async def running_nodes(self, client, now):
        return self.running


class Hurrying(MovableClock):
    """Sleep passes at once."""

    async def sleep(self, seconds):
        self._elapsed += seconds


@pytest.fixture
def clock():
    return Hurrying(START)


@pytest.fixture
def place(tmp_path):
    made = layout.Layout.at(tmp_path / "d")
    preparation.prepare(made, server=SERVER, now=START)
    return made


@pytest.fixture
def objects(place, monkeypatch):
    return Objects(place, monkeypatch)


class ReadableRotation(sequence.Rotation):
    @property
    def state(self):
        """What is written down."""
        return self._directory.read()


@pytest.fixture
def rotations(place, objects, clock):
    @contextlib.asynccontextmanager
    async def reach():
        yield None

    def make(target=Target.CA, *, running=True):
        return ReadableRotation(place, target, steps.ControlPlane(reach=reach, running=running, clock=clock))

    return make


def fingerprints(place):
    found = pem.certificates_from_pem(place.ca_certificate.read_bytes())
    return [certificates.read(der).fingerprint for der in found]


def key_ids(place):
    return [jwt.key_id(public) for public in preparation.public_keys(place.service_account_public_key)]


def issuer_of(der, place):
    """The fingerprint of the CA of the file under which a certificate is good."""
    for anchor in bundles.TrustBundle.from_pem(place.ca_certificate.read_bytes()).anchors:
        for purpose in (chains.Client(), chains.Server("localhost")):
            with contextlib.suppress(errors.Refused):
                instant = certificates.read(der).not_before + DAY
                chains.verify([der], bundles.TrustBundle.of([anchor.der]), purpose, instant)
                return anchor.fingerprint
    return None


def own_issuers(place):
    found = {issuer_of(own.certificate(place.apiserver_certificate).der, place)}
    for path in (place.admin_kubeconfig, place.controllers_kubeconfig):
        config = kubeconfig.parse(path.read_text())
        assert config.user is not None
        found.add(issuer_of(pem.certificates_from_pem(config.user.client_certificate_data or b"")[0], place))
        trusted = bundles.TrustBundle.from_pem(config.cluster.certificate_authority_data or b"")
        assert trusted.digest == bundles.TrustBundle.from_pem(place.ca_certificate.read_bytes()).digest, path
    return found


def snapshot(place):
    return {str(path): path.read_bytes() for path in place.pki.glob("*") if path.is_file() and path.name != ".lock"}


def node_entry(issued_at, not_after):
    return entries.Entry(
        issued_at=issued_at,
        signer="s",
        requester="r",
        authenticated_by="x509",
        token_id="",
        key_fingerprint="0" * 64,
        serial="1",
        names=("CN=system:node:a",),
        not_after=not_after,
        rule="",
        request="c",
        certificate="0" * 64,
    )


async def until(work, step, **options):
    """Go on until this is the next step."""
    while True:
        state = work.state
        if state is not None and state.next is step:
            return
        await work.advance(skip_waits=True, **options)


class TestTheCA:
    async def test_step_by_step(self, rotations, place, objects):
        work = rotations()
        (old,) = fingerprints(place)
        report = await work.advance()
        assert (report.did, report.next) == (Step.ADD, Step.PUBLISH)
        new = fingerprints(place)[1]
        assert fingerprints(place) == [old, new]
        assert own_issuers(place) == {old}
        assert "pki/ca.crt extended" in report.actions
        report = await work.advance()
        assert (report.did, report.next) == (Step.PUBLISH, Step.SWITCH)
        assert {anchor.fingerprint for anchor in objects.client_cas.anchors} == {old, new}
        (wait,) = report.waits
        assert wait.until == START + rotation.PUBLICATION_TIME
        waiting = await work.advance()
        assert (waiting.did, waiting.next, waiting.waits) == (None, Step.SWITCH, (wait,))
        report = await work.advance(skip_waits=True)
        assert (report.did, trust_files.signing_ca(place)) == (Step.SWITCH, new)
        assert fingerprints(place) == [new, old], "the signer stands first"
        assert own_issuers(place) == {old}
        report = await work.advance()
        assert (report.did, own_issuers(place)) == (Step.REISSUE, {new})
        report = await work.advance()
        assert (report.did, report.next, fingerprints(place)) == (Step.RETIRE, None, [new])
        assert work.state is None

    async def test_a_retired_ca_is_gone_from_everywhere(self, rotations, place, objects):
        work = rotations()
        old = pathlib.Path(place.ca_key).read_bytes()
        await until(work, Step.RETIRE)
        report = await work.advance()
        (new,) = fingerprints(place)
        assert [anchor.fingerprint for anchor in objects.client_cas.anchors] == [new]
        assert own_issuers(place) == {new}
        held = [path for path in place.root.rglob("*") if path.is_file() and old in path.read_bytes()]
        assert held == [], "its key is gone as well"
        assert report.actions[-1] == "the keys of the rotation removed"
        # A restart finds nothing to mend, and the next rotation begins anew.
        assert preparation.prepare(place, server=SERVER, now=START) == []
        assert (await work.advance()).did is Step.ADD

    async def test_the_server_of_configurations_goes_along(self, rotations, place, clock):
        listen = Address("127.0.0.1", 22623)
        preparation.prepare(place, server=SERVER, machine_config=listen, now=START)
        work = rotations()
        await until(work, Step.RETIRE)
        await work.advance()
        bundle = bundles.TrustBundle.of([preparation.read_trust(place).signer.certificate.der])
        shown = own.certificate(place.machine_config_certificate)
        chains.verify([shown.der], bundle, chains.Server("localhost"), clock.now())
        held = kubeconfig.parse(place.machine_config_kubeconfig.read_text())
        assert bundles.TrustBundle.from_pem(held.cluster.certificate_authority_data or b"") == bundle
        assert preparation.prepare(place, server=SERVER, machine_config=listen, now=clock.now(), again=True) == []

    @pytest.mark.parametrize("way", ["on", "back"])
    async def test_every_certificate_of_a_retired_key_goes(self, rotations, place, objects, way):
        work = rotations()
        await until(work, Step.RETIRE)
        if way == "back":
            await work.undo()
            await until(work, Step.RETIRE)
        key = keys.private_from_pem(
            (place.rotation(Target.CA) / ("old.key" if way == "on" else "new.key")).read_bytes()
        )
        again = authority.self_signed_ca(names.Subject(common_name="again"), key, START - DAY)
        place.ca_certificate.write_bytes(place.ca_certificate.read_bytes() + again.pem)
        objects.client_cas = objects.client_cas.add(again.certificate.der)
        stays = trust_files.signing_ca(place)
        assert (await work.advance()).did is Step.RETIRE
        assert fingerprints(place) == [stays]
        assert [anchor.fingerprint for anchor in objects.client_cas.anchors] == [stays]
        assert own_issuers(place) == {stays}

    async def test_a_certificate_that_comes_back_is_not_overlooked(self, rotations, place, objects, monkeypatch):
        work = rotations()
        await until(work, Step.RETIRE)
        old = trust_files.der_of(place, work.state.leaving)
        client_cas, distrust = objects.client_cas, objects.distrust_client_ca

        async def in_the_file(client, leaving):
            await distrust(client, leaving)
            place.ca_certificate.write_bytes(place.ca_certificate.read_bytes() + pem.certificates_to_pem([old]))

        async def in_the_object(client, leaving):
            objects.client_cas = client_cas

        for put_back, named in (
            (in_the_file, str(place.ca_certificate)),
            (in_the_object, "extension-apiserver-authentication"),
        ):
            monkeypatch.setattr(trust_objects, "distrust_client_ca", put_back)
            with pytest.raises(errors.Unavailable, match=named):
                await work.advance()
            assert work.state.doing is Step.RETIRE
        monkeypatch.setattr(trust_objects, "distrust_client_ca", distrust)
        assert (await work.advance()).next is None
        assert (len(fingerprints(place)), len(objects.client_cas.anchors)) == (1, 1)

    async def test_a_key_that_is_lost_keeps_no_ca(self, rotations, place, objects):
        work = rotations()
        await until(work, Step.RETIRE)
        (place.rotation(Target.CA) / "old.key").unlink()
        assert (await work.advance()).did is Step.RETIRE
        assert (len(fingerprints(place)), len(objects.client_cas.anchors)) == (1, 1)

    @pytest.mark.parametrize("target", OF_DIRECTORY)
    @pytest.mark.parametrize("step", [Step.RETIRE, Step.DROP])
    async def test_leftovers_go_with_the_last_step(self, rotations, place, objects, target, step):
        work = rotations(target)
        await until(work, Step.SWITCH)
        left = place.pki / ".ca.key.x1.tmp"
        left.write_bytes(place.ca_key.read_bytes())
        if step is Step.DROP:
            await work.undo()
        else:
            await until(work, Step.RETIRE)
            assert left.exists(), "somebody may be writing it"
            await work.advance(skip_waits=True)
        assert not left.exists()

    async def test_other_client_cas_stay(self, rotations, objects):
        theirs = authority.self_signed_ca(names.Subject(common_name="theirs"), keys.generate(), START)
        objects.client_cas = objects.client_cas.add(theirs.certificate.der)
        work = rotations()
        await until(work, Step.RETIRE)
        await work.advance()
        assert theirs.certificate.der in objects.client_cas.ders
        assert len(objects.client_cas.ders) == 2

    async def test_preparing_in_between_changes_nothing(self, rotations, place, clock):
        work = rotations()
        for _ in range(4):
            await work.advance(skip_waits=True)
            assert preparation.prepare(place, server=SERVER, now=clock.now(), again=True) == []

    async def test_where_it_is_stopped_this_writes_the_objects(self, rotations, objects):
        work = rotations(running=False)
        await until(work, Step.RETIRE)
        await work.advance()
        assert objects.written == 2

    async def test_retiring_waits_for_renewals(self, rotations, objects, clock):
        work = rotations()
        await until(work, Step.RETIRE)
        objects.entries = [node_entry(START - DAY, START + DAY)]
        report = await work.advance()
        assert (report.did, report.next) == (None, Step.RETIRE)
        assert "CN=system:node:a" in report.waits[0].sentence
        await clock.advance(DAY.total_seconds())
        assert (await work.advance()).did is Step.RETIRE

    async def test_retiring_waits_for_nodes_that_are_off(self, rotations, objects, clock):
        work = rotations()
        await until(work, Step.RETIRE)
        await clock.advance(DAY.total_seconds())
        now = clock.now()
        objects.entries = [node_entry(START - DAY, now + DAY), node_entry(now - DAY / 2, now + 9 * DAY)]
        report = await work.advance()
        assert (report.did, report.next) == (None, Step.RETIRE)
        assert "may lack the new one" in report.waits[0].sentence
        objects.running = frozenset({"a"})
        assert (await work.advance()).did is Step.RETIRE

    async def test_an_overview_tells_who_signs(self, rotations, place, objects, clock):
        work = rotations()
        await until(work, Step.REISSUE)
        found = trust_overview.of(place, [], clock.now())
        assert sorted((anchor.signs, anchor.unexpired) for anchor in found.anchors) == [(False, 0), (True, 0)]
        assert [state.next for state in found.rotations] == [Step.REISSUE]
        assert [signs for _, signs in found.keys] == [True]


class TestTheKeyOfTokens:
    async def test_a_retired_key_is_gone(self, rotations, place, objects):
        work = rotations(Target.TOKEN_KEY)
        (old,) = key_ids(place)
        assert (await work.advance()).did is Step.ADD
        new = key_ids(place)[1]
        assert trust_files.signing_key_id(place) == old
        assert (await work.advance()).did is Step.PUBLISH
        assert (await work.advance(skip_waits=True)).did is Step.SWITCH
        assert (trust_files.signing_key_id(place), key_ids(place)) == (new, [old, new])
        objects.tokens = ["default/robot"]
        report = await work.advance()
        assert report.did is None
        assert [wait.until for wait in report.waits] == [START + 365 * DAY, None]
        report = await work.advance(skip_waits=True)
        assert (report.did, key_ids(place), work.state) == (Step.RETIRE, [new], None)
        assert preparation.prepare(place, server=SERVER, now=START) == []

    async def test_both_kinds_may_be_under_way(self, rotations, place):
        await until(rotations(), Step.SWITCH)
        await until(rotations(Target.TOKEN_KEY), Step.SWITCH)
        assert (len(fingerprints(place)), len(key_ids(place))) == (2, 2)


class TestTheWayBack:
    @pytest.mark.parametrize("target", OF_DIRECTORY)
    @pytest.mark.parametrize("step", [Step.PUBLISH, Step.SWITCH])
    async def test_before_the_switch_all_is_as_it_was(self, rotations, place, objects, target, step):
        before = snapshot(place)
        work = rotations(target)
        await until(work, step)
        report = await work.undo()
        assert (report.did, report.next, work.state) == (Step.DROP, None, None)
        assert snapshot(place) == before
        assert len(objects.client_cas.ders) == 1

    @pytest.mark.parametrize("step", [Step.REISSUE, Step.RETIRE])
    async def test_after_it_the_old_one_signs_and_the_new_one_is_retired(self, rotations, place, objects, step):
        work = rotations()
        (old,) = fingerprints(place)
        await until(work, step)
        report = await work.undo()
        assert (report.did, report.next) == (Step.SWITCH, Step.REISSUE)
        assert trust_files.signing_ca(place) == old
        assert len(fingerprints(place)) == 2, "what the new one issued is still good"
        await work.advance()
        assert own_issuers(place) == {old}
        assert (await work.advance()).did is Step.RETIRE
        assert fingerprints(place) == [old]
        assert [anchor.fingerprint for anchor in objects.client_cas.anchors] == [old]

    async def test_of_nothing_is_refused(self, rotations):
        with pytest.raises(errors.Refused) as caught:
            await rotations().undo()
        assert caught.value.reason == "NoRotation"

    async def test_once_retiring_has_begun_there_is_none(self, rotations, place, objects):
        work = rotations()
        await until(work, Step.RETIRE)
        objects.notices = False
        with pytest.raises(errors.Unavailable):
            await work.advance()
        with pytest.raises(errors.Refused) as caught:
            await work.undo()
        assert caught.value.reason == "TooLate"
        objects.notices = True
        assert (await work.advance()).next is None


class TestTrouble:
    async def test_keys_are_private(self, rotations, place):
        for target in OF_DIRECTORY:
            await until(rotations(target), Step.SWITCH)
            directory = place.rotation(target)
            assert stat.S_IMODE(directory.stat().st_mode) == 0o700
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}
            assert {"old.key", "new.key", "state.json"} <= modes.keys()
            assert set(modes.values()) == {0o600}
        place.rotation(Target.CA).joinpath("new.key").chmod(0o644)
        with pytest.raises(errors.Refused) as caught:
            await rotations().advance(skip_waits=True)
        assert caught.value.reason == "FileNotPrivate"

    async def test_a_key_that_does_not_fit_changes_nothing(self, rotations, place):
        for target in OF_DIRECTORY:
            work = rotations(target)
            await until(work, Step.SWITCH)
            files.write_atomically(place.rotation(target) / "new.key", keys.generate().to_pem())
            before = snapshot(place)
            with pytest.raises(errors.Refused) as caught:
                await work.advance(skip_waits=True)
            assert caught.value.reason in {"BadAuthority", "DataDirectoryInconsistent"}
            assert snapshot(place) == before

    async def test_the_key_of_the_ca_that_stays_does_not_leave(self, rotations, place):
        work = rotations()
        await until(work, Step.RETIRE)
        files.write_atomically(place.rotation(Target.CA) / "old.key", place.ca_key.read_bytes())
        before = snapshot(place)
        with pytest.raises(errors.Refused, match="which is to stay") as caught:
            await work.advance(skip_waits=True)
        assert caught.value.reason == "DataDirectoryInconsistent"
        assert snapshot(place) == before

    @pytest.mark.parametrize("target", OF_DIRECTORY)
    async def test_a_signer_that_is_not_the_one_to_stay_is_not_retired_around(self, rotations, place, target):
        """Somebody put the old key back by hand."""
        work = rotations(target)
        await until(work, Step.RETIRE)
        key_file = place.ca_key if target is Target.CA else place.service_account_key
        key_file.write_bytes((place.rotation(target) / "old.key").read_bytes())
        before = snapshot(place)
        with pytest.raises(errors.Refused, match="which is to stay"):
            await work.advance(skip_waits=True)
        assert snapshot(place) == before

    async def test_a_damaged_state_is_refused(self, rotations, place):
        work = rotations()
        await until(work, Step.RETIRE)
        path = place.rotation(Target.CA) / "state.json"
        path.write_text(path.read_text().replace('"turned": false', '"turned": 0'))
        before = snapshot(place)
        with pytest.raises(errors.Refused, match=str(path)) as caught:
            await work.advance(skip_waits=True)
        assert caught.value.reason == "BadRotationState"
        assert snapshot(place) == before

    async def test_while_one_caller_is_at_work_a_second_is_refused(self, rotations):
        with rotations().alone(), pytest.raises(errors.Refused) as caught, rotations().alone():
            pass
        assert caught.value.reason == "DirectoryInUse"
        with rotations().alone():
            pass

    @pytest.mark.parametrize("target", OF_DIRECTORY)
    async def test_what_is_not_noticed_is_not_done(self, rotations, objects, target):
        work = rotations(target)
        await until(work, Step.PUBLISH)
        objects.notices = False
        with pytest.raises(errors.Unavailable) as caught:
            await work.advance(skip_waits=True)
        assert caught.value.reason == "NotNoticed"
        assert work.state.doing is Step.PUBLISH
        objects.notices = True
        assert (await work.advance()).did is Step.PUBLISH


def crashing(work, number):
    """In a child: do every step, and die by SIGKILL at the Nth change of a file. Whether it died."""
    child = os.fork()
    if child == 0:
        count = 0

        def counted(function):
            def wrapper(*arguments, **options):
                nonlocal count
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return wrapper

        for name in ("replace", "unlink"):
            setattr(pathlib.Path, name, counted(getattr(pathlib.Path, name)))
        code = 1
        with contextlib.suppress(errors.HandfastError):
            asyncio.run(finish(work))
            code = 0
        os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


async def finish(work):
    while (await work.advance(skip_waits=True)).next is not None:
        pass


@pytest.mark.parametrize("target", OF_DIRECTORY)
@pytest.mark.parametrize("way", ["on", "back"])
def test_a_crash_at_any_file_is_survived(rotations, place, objects, clock, target, way):
    before = {path: path.read_bytes() for path in place.root.rglob("*") if path.is_file()}
    work = rotations(target)
    number, died = 0, True
    while died:
        number += 1
        for path in [path for path in place.root.rglob("*") if path.is_file()]:
            path.unlink()
        for path, data in before.items():
            path.write_bytes(data)
            path.chmod(0o600)
        objects.client_cas = objects.file()
        (old,) = fingerprints(place) if target is Target.CA else key_ids(place)
        died = crashing(work, number)
        # The directory can be served at every instant.
        preparation.prepare(place, server=SERVER, now=clock.now())
        objects.client_cas = objects.client_cas.add(*objects.file().ders)
        if way == "back" and work.state is not None and work.state.doing is not Step.RETIRE:
            report = asyncio.run(work.undo())
            if report.next is not None:
                asyncio.run(finish(work))
            assert (fingerprints(place) if target is Target.CA else key_ids(place)) == [old]
        elif died:
            asyncio.run(finish(work))
        left = fingerprints(place) if target is Target.CA else key_ids(place)
        assert len(left) == 1
        assert work.state is None
        assert preparation.prepare(place, server=SERVER, now=clock.now()) == []
        assert sorted(path.name for path in place.rotation(target).glob("*.*")) in ([], [".lock"])
    assert number > 10
