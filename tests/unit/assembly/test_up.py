# SPDX-License-Identifier: Apache-2.0
"""`up` put together: which children run with which words, and `endpoints.json`."""

import json
import os
import pathlib
import socket

import pytest

from handfast import errors
from handfast.assembly import config, up
from handfast.datadir import endpoints, layout
from handfast.runtime import addresses, children, files, routes, supervisor, watchdog
from tests.unit.pki import making


class Console:
    def __init__(self):
        self.events = []
        self.found = None
        self.printed = b""
        self.introduction = b""

    def event(self, level, text, **fields):
        self.events.append((level, text))

    def prepared(self, printed):
        self.printed = printed

    def introduced(self, printed):
        self.introduction = printed

    def ready(self, found):
        self.found = found


PREPARED = b'{"done": [], "seconds": 1000000.0, "warning": null}'


MESH_PORTS = (
    *("identity", "identity_admin", "destination", "destination_admin", "policy", "agents"),
    *("injector", "injector_admin"),
)


class FakeSupervisor:
    """Plays a whole life at once, and keeps what it was given."""

    made: "FakeSupervisor"
    error: errors.HandfastError | None = None

    def __init__(self, roles, events, timing, first, *, beside):
        FakeSupervisor.made = self
        self.roles, self.events, self.timing, self.first, self.beside = roles, events, timing, first, beside

    async def run(self):
        self.inheritable = [os.fstat(one).st_mode for role in self.roles for one in role.descriptors]
        self.again = self.events.prepared(PREPARED)
        self.events.event("info", "hello")
        self.events.changed({"apiserver": 1, "controllers": 2})
        self.events.ready()
        self.document = json.loads((self.events.directory / "endpoints.json").read_bytes())
        if FakeSupervisor.error is not None:
            raise FakeSupervisor.error


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(FakeSupervisor, "error", None)
    return layout.Layout.at(tmp_path)


async def run(place, token=None, unnamed=(), **changes):
    flags = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", **changes}
    console = Console()
    lock = files.lock_directory(place.root)
    try:
        await up.run(
            place,
            lock,
            config.resolve(flags, {}, {}, "").configuration,
            console,
            role_flags=up.RoleFlags(unnamed=unnamed),
            token=token,
        )
    finally:
        lock.release()
    return console


async def test_children_are_told_everything(place):
    console = await run(
        place, advertise=["a:1", "b:2"], leader_elect=True, controllers="*,-endpoints-controller", log_level="debug"
    )
    made = FakeSupervisor.made
    apiserver, controllers = made.roles
    assert [role.name for role in made.roles] == ["apiserver", "controllers"]
    port = int(made.document["apiserver"].rpartition(":")[2])
    words = list(apiserver.argv)
    assert words[4:6] == ["serve", "apiserver"]
    assert words[words.index("--listen") + 1] == f"127.0.0.1:{port}"
    assert int(words[words.index("--listen-fd") + 1]) in apiserver.descriptors
    for role in (apiserver, made.first, controllers):
        assert [word for word in role.argv if word in {"a:1", "b:2"}] == ["a:1", "b:2"]
    words = list(controllers.argv)
    assert words[words.index("--controllers") + 1] == "*,-endpoints-controller"
    assert words[words.index("--kubeconfig") + 1] == str(place.controllers_kubeconfig)
    assert {"--leader-elect", "--protect-living-nodes"} <= set(words)
    assert words[words.index("--ledger-retention-days") + 1] == "90"
    assert words[words.index("--join-within") + 1] == "2h"
    assert words[-1] == "debug"
    assert made.document["controllersAdmin"] == f"http://{words[words.index('--admin-listen') + 1]}"
    assert console.events == [("info", "hello")]
    assert console.printed == PREPARED


async def test_with_machines_their_configurations_are_served(place):
    free = "127.0.0.1:0"
    await run(place, machines=True, machine_config_listen=free, machine_config_admin_listen=free)
    made = FakeSupervisor.made
    assert [role.name for role in made.roles] == ["apiserver", "controllers", "machine-config"]
    server = made.roles[2]
    words = list(server.argv)
    assert words[4:6] == ["serve", "machine-config"]
    listen = words[words.index("--machine-config-listen") + 1]
    assert made.document["machineConfig"] == f"https://{listen}"
    assert made.document["machineConfigAdmin"] == f"http://{words[words.index('--machine-config-admin-listen') + 1]}"
    assert list(made.first.argv)[-3:] == ["--machines", "--machine-config-listen", listen]


async def test_with_a_mesh_its_services_run_and_their_tokens_are_kept_fresh(place, monkeypatch):
    free = {f"{name}_listen": "127.0.0.1:0" for name in MESH_PORTS}
    errands = []

    async def child(role):
        errands.append(list(role.argv)[4:])
        return b'{"seconds": 3600}'

    monkeypatch.setattr(children, "run_once", child)
    await run(place, mesh=True, identity_advertise="192.0.2.7:8080", **free)
    made = FakeSupervisor.made
    names = [role.name for role in made.roles]
    assert names[:3] == ["apiserver", "controllers", "identity"]
    for role in made.roles[2:]:
        words = list(role.argv)
        assert words[words.index("--kubeconfig") + 1].startswith(str(place.mesh))
        assert made.document[f"{role.name}Admin"] == f"http://{words[words.index(f'--{role.name}-admin-listen') + 1]}"
    assert list(made.first.argv)[-1] == "--mesh"
    assert len(made.beside) == 1
    await made.roles[1].ready()
    install, accounts = errands[1:]
    assert install[:2] == ["mesh", "install"]
    assert "identity.address=192.0.2.7:8080" in install
    assert accounts == ["serve", "mesh-accounts", "--dir", str(place.root)]
    # Once.
    await made.roles[1].ready()
    assert len(errands) == 3


async def test_services_of_the_mesh_that_listen_everywhere_are_known_by_an_address_that_leads_there(place, monkeypatch):
    monkeypatch.setattr(routes, "source", lambda _: "192.0.2.9")
    words = []

    async def child(role):
        words.extend(role.argv)
        return b'{"seconds": 3600}'

    monkeypatch.setattr(children, "run_once", child)
    free = {f"{name}_listen": "127.0.0.1:0" for name in MESH_PORTS} | {"policy_listen": "0.0.0.0:0"}
    await run(place, mesh=True, injector_advertise="[2001:db8::1]:8443", destination_advertise="mesh.example:1", **free)
    made = FakeSupervisor.made
    await made.roles[1].ready()
    port = made.document["policy"].rpartition(":")[2]
    # Here it is reached by loopback, and by others at an address of this machine.
    assert made.document["policy"] == f"127.0.0.1:{port}"
    assert {f"policy.address=192.0.2.9:{port}", f"policy=192.0.2.9:{port}", "injector=[2001:db8::1]:8443"} <= set(words)
    # A name is for workloads: an EndpointSlice has none.
    assert "destination.address=mesh.example:1" in words
    assert not [word for word in words if word.startswith("destination=")]


async def test_a_mesh_that_was_not_installed_is_told_and_stops_nobody(place, monkeypatch):
    async def child(_):
        raise errors.Refused("no")

    monkeypatch.setattr(children, "run_once", child)
    console = await run(place, mesh=True, **{f"{name}_listen": "127.0.0.1:0" for name in MESH_PORTS})
    await FakeSupervisor.made.roles[1].ready()
    assert ("warning", "the mesh was not installed: no") in console.events
    assert ("warning", "the tokens of the mesh's services were not renewed: no") in console.events


@pytest.mark.parametrize("due, again", [(1e9, 3600.0), (0.0, 5.0), (60.0, 61.0), (4.5, 5.5)])
async def test_the_directory_is_looked_after_every_hour_and_when_something_is_due(place, monkeypatch, due, again):
    monkeypatch.setattr(f"{__name__}.PREPARED", json.dumps({"done": [], "seconds": due, "warning": None}).encode())
    await run(place)
    assert FakeSupervisor.made.again == again
    assert FakeSupervisor.made.first.again == ("--again",)


async def test_where_nothing_is_advertised_the_place_to_listen_is(place):
    await run(place)
    made = FakeSupervisor.made
    words = list(made.roles[1].argv)
    assert f"https://{words[words.index('--advertise') + 1]}" == made.document["apiserver"]
    assert "--advertise" not in made.roles[0].argv


async def test_who_listens_everywhere_is_known_by_an_address_for_other_machines(place, monkeypatch):
    """Everyone is told: the certificate names it, and newcomers are sent there."""
    monkeypatch.setattr(routes, "source", lambda _host: "198.51.100.1")
    await run(place, listen="0.0.0.0:0")
    made = FakeSupervisor.made
    port = made.document["apiserver"].rpartition(":")[2]
    for role in (made.first, *made.roles):
        words = list(role.argv)
        assert words[words.index("--advertise") + 1] == f"198.51.100.1:{port}"


class TestPorts:
    """Two listeners of somebody else's, on the ports of the defaults."""

    @pytest.fixture
    def taken(self):
        with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
            yield [f"127.0.0.1:{sock.getsockname()[1]}" for sock in (one, two)]

    async def test_where_nobody_named_one_another_is_chosen_and_told(self, place, taken):
        flags = {"listen": taken[0], "admin_listen": taken[1]}
        console = await run(place, unnamed=("--listen", "--admin-listen"), **flags)
        document = FakeSupervisor.made.document
        used = [document[name].rpartition(":")[2] for name in ("apiserver", "controllersAdmin")]
        ports = [address.rpartition(":")[2] for address in taken]
        assert len({*ports, *used}) == 4
        assert console.events[:2] == [
            ("warning", f"port {ports[0]} is taken, so that port {used[0]} is used; --listen names another"),
            ("warning", f"port {ports[1]} is taken, so that port {used[1]} is used; --admin-listen names another"),
        ]

    @pytest.mark.parametrize("named, flag", [(0, "--listen"), (1, "--admin-listen")])
    async def test_one_that_was_named_is_an_error(self, place, taken, named, flag):
        flags = {("listen", "admin_listen")[named]: taken[named]}
        with pytest.raises(errors.Refused) as caught:
            await run(place, unnamed={"--listen", "--admin-listen"} - {flag}, **flags)
        assert caught.value.reason == "AddressInUse"
        assert flag in str(caught.value.hint)

    async def test_every_port_is_handed_to_its_process_and_held_to_the_end(self, place, monkeypatch):
        """Of two that start at once, none takes a port of the other, whichever of its processes starts when."""
        refused, handed, listening = [], {}, {}

        async def life(self):
            for role in self.roles:
                words = list(role.argv)
                for index, word in enumerate(words):
                    if word == "--socket":
                        name, _, number = words[index + 1].partition("=")
                        assert int(number) in role.descriptors
                        handed[name] = int(number)
                        listening[name] = addresses.parse(words[index - 1])
            for name, address in listening.items():
                with socket.socket(fileno=os.dup(handed[name])) as sock:
                    assert sock.getsockname()[1] == address.port
                with pytest.raises(errors.Refused) as caught:
                    addresses.listen(address, "--x")
                refused.append(caught.value.reason)

        monkeypatch.setattr(FakeSupervisor, "run", life)
        names = (*MESH_PORTS, "machine_config", "machine_config_admin", "console")
        ports = {f"{name}_listen": "127.0.0.1:0" for name in names}
        await run(place, mesh=True, machines=True, console=True, **ports)
        # Those of the API server and of the console, which have one each, are told otherwise.
        assert set(handed) == {"admin_listen", *ports} - {"console_listen"}
        assert refused == ["AddressInUse"] * len(handed)
        # When it ends, they are free.
        for address in listening.values():
            addresses.listen(address, "--x").close()


async def test_endpoints_tell_while_it_runs_and_go_with_it(place):
    console = await run(place)
    assert FakeSupervisor.made.document["pids"] == {"supervisor": os.getpid(), "apiserver": 1, "controllers": 2}
    assert console.found is not None
    assert console.found.pids == {"apiserver": 1, "controllers": 2}
    assert not (place.root / "endpoints.json").exists()


async def test_endpoints_go_with_a_failure_as_well(place, monkeypatch):
    monkeypatch.setattr(FakeSupervisor, "error", errors.Refused("no"))
    with pytest.raises(errors.Refused):
        await run(place)
    assert not (place.root / "endpoints.json").exists()


async def test_a_full_disk_is_told_and_stops_nobody(place, monkeypatch):
    written = endpoints.write

    def full(directory, found):
        written(directory, found)
        raise errors.Unavailable("no space", reason="NoSpace")

    monkeypatch.setattr(endpoints, "write", full)
    assert ("warning", "no space") in (await run(place)).events


async def test_on_a_full_disk_the_old_file_makes_room_for_the_new_one(place, monkeypatch):
    written = endpoints.write

    def full(directory, found):
        if (directory / "endpoints.json").exists():
            raise errors.Unavailable("no space", reason="NoSpace")
        written(directory, found)

    async def life(self):
        self.events.changed({"apiserver": 1})
        monkeypatch.setattr(endpoints, "write", full)
        self.events.changed({"apiserver": 2})
        seen.append(json.loads((self.events.directory / "endpoints.json").read_bytes())["pids"]["apiserver"])

    seen: list[int] = []
    monkeypatch.setattr(FakeSupervisor, "run", life)
    assert (await run(place)).events == []
    assert seen == [2]


async def test_no_file_is_left_that_names_the_dead(place, monkeypatch):
    """Where not even that helps there is none."""

    def full(directory, found):
        raise errors.Unavailable("no space", reason="NoSpace")

    async def life(self):
        self.events.changed({"apiserver": 1})
        monkeypatch.setattr(endpoints, "write", full)
        self.events.changed({})
        assert not (self.events.directory / "endpoints.json").exists()

    monkeypatch.setattr(FakeSupervisor, "run", life)
    assert (await run(place)).events == [("warning", "no space")]


async def test_what_a_killed_one_left_is_gone_before_anything_starts(place, monkeypatch):
    there = []

    async def life(self):
        there.append((self.events.directory / "endpoints.json").exists())

    (place.root / "endpoints.json").write_text('{"pids": {"supervisor": 1}}')
    monkeypatch.setattr(FakeSupervisor, "run", life)
    await run(place)
    assert there == [False]


@pytest.mark.parametrize("seconds, silence", [(0, None), (60, watchdog.Patience()), (6, watchdog.Patience.of(6))])
async def test_how_long_silence_is_borne_is_a_setting(place, seconds, silence):
    await run(place, watchdog_seconds=seconds)
    made = FakeSupervisor.made
    assert made.timing.silence == silence
    asked = [role.livez(1.0) for role in made.roles]
    assert [f"https://{asked[0]._address}", f"http://{asked[1]._address}"] == [
        made.document["apiserver"],
        made.document["controllersAdmin"],
    ]
    assert [one._context is None for one in asked] == [False, True]


async def test_readiness_trusts_the_directorys_ca_only(place, monkeypatch):
    trusted = []

    async def answers(address, path, context):
        trusted.extend(context.get_ca_certs(binary_form=True))
        return True

    monkeypatch.setattr(supervisor, "answers", answers)
    await run(place)
    ready = FakeSupervisor.made.roles[0].ready
    with pytest.raises(errors.Refused, match=r"ca\.crt"):
        await ready()
    place.pki.mkdir()
    place.ca_certificate.write_text("garbage")
    with pytest.raises(errors.Refused, match="the CA bundle holds no certificate"):
        await ready()
    assert trusted == []
    ca = making.ca()
    place.ca_certificate.write_bytes(ca.pem)
    assert await ready()
    assert trusted == [ca.der]


class TestFirstObjects:
    """They are made by a child while the controllers start, once."""

    @pytest.fixture
    def children(self, monkeypatch):
        """What the children were told, with the token that came through the pipe."""
        seen = []

        async def run_once(role):
            words = list(role.argv)
            piped = None
            if "--token-file" in words:
                path = words[words.index("--token-file") + 1]
                assert path == f"/dev/fd/{role.descriptors[0]}"
                piped = pathlib.Path(path).read_text()
            seen.append((words, piped))
            if self.failure is not None:
                raise self.failure
            return b"{}"

        async def answers(*_):
            return self.answer

        monkeypatch.setattr(children, "run_once", run_once)
        monkeypatch.setattr(supervisor, "answers", answers)
        monkeypatch.setattr(FakeSupervisor, "run", self.life)
        self.failure, self.answer, self.asked = None, True, []
        return seen

    async def life(self):
        """Asks the controllers twice whether they are ready."""
        ready = FakeSupervisor.made.roles[1].ready
        self.asked += [await ready(), await ready()]

    async def test_once_with_everything(self, place, children):
        console = await run(place, advertise=["a:1", "b:2"])
        ((words, piped),) = children
        assert words[4:8] == ["init", "--first-start", "--kubeconfig", str(place.admin_kubeconfig)]
        assert [word for word in words if word in {"a:1", "b:2"}] == ["a:1", "b:2"]
        assert words[words.index("--token-ttl") + 1] == "24h"
        assert "--token" not in words
        assert piped is None
        assert words[-2:] == ["-o", "json"]
        assert console.introduction == b"{}"
        assert self.asked == [True, True]

    async def test_a_token_is_not_among_the_arguments(self, place, children):
        token = up.FirstToken("abcdef.0123456789abcdef", "1h")
        await run(place, token)
        ((words, piped),) = children
        assert piped == "abcdef.0123456789abcdef"
        assert not [word for word in words if "abcdef" in word]
        assert words[words.index("--token-ttl") + 1] == "1h"
        assert "0123456789abcdef" not in repr(token)

    async def test_no_token(self, place, children):
        await run(place, up.FirstToken(""))
        ((words, _),) = children
        assert words[words.index("--token") + 1] == ""

    async def test_a_failure_is_told_and_stops_nobody(self, place, children):
        self.failure = errors.Unavailable("no room", reason="NoSpace")
        self.answer = False
        console = await run(place)
        text = "the objects that machines need to join were not made: no room"
        assert ("warning", text) in console.events
        assert console.introduction == b""
        assert self.asked == [False, False]
        assert len(children) == 1
