# SPDX-License-Identifier: Apache-2.0
"""`up` put together: which children run with which words, and `endpoints.json`."""

import json
import os

import pytest

from handfast import errors
from handfast.assembly import config, endpoints, layout, supervisor, up
from handfast.runtime import files


class Console:
    def __init__(self):
        self.events = []
        self.found = None
        self.printed = b""

    def event(self, level, text, **fields):
        self.events.append((level, text))

    def prepared(self, printed):
        self.printed = printed

    def ready(self, found):
        self.found = found


class FakeSupervisor:
    """Plays a whole life at once, and keeps what it was given."""

    made: "FakeSupervisor"
    error: errors.HandfastError | None = None

    def __init__(self, roles, events, timing, first):
        FakeSupervisor.made = self
        self.roles, self.events, self.first = roles, events, first

    async def run(self):
        self.inheritable = [os.fstat(one).st_mode for role in self.roles for one in role.descriptors]
        self.events.prepared(b"[]")
        self.events.event("info", "hello")
        self.events.started({"apiserver": 1, "controllers": 2})
        self.events.ready()
        self.document = json.loads((self.events.directory / "endpoints.json").read_bytes())
        if FakeSupervisor.error is not None:
            raise FakeSupervisor.error


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(supervisor, "Supervisor", FakeSupervisor)
    monkeypatch.setattr(FakeSupervisor, "error", None)
    return layout.Layout.at(tmp_path)


async def run(place, **changes):
    flags = {"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", **changes}
    console = Console()
    lock = files.lock_directory(place.root)
    try:
        await up.run(place, lock, config.resolve(flags, {}, {}, "").configuration, console)
    finally:
        lock.release()
    return console


async def test_children_are_told_everything(place):
    console = await run(place, advertise=["a:1", "b:2"], leader_elect=True, controllers="x,-y", log_level="debug")
    made = FakeSupervisor.made
    apiserver, controllers = made.roles
    assert [role.name for role in made.roles] == ["apiserver", "controllers"]
    port = int(made.document["apiserver"].rpartition(":")[2])
    words = list(apiserver.argv)
    assert words[4:6] == ["serve", "apiserver"]
    assert words[words.index("--listen") + 1] == f"127.0.0.1:{port}"
    assert int(words[words.index("--listen-fd") + 1]) in apiserver.descriptors
    for role in (apiserver, made.first):
        assert [word for word in role.argv if word in {"a:1", "b:2"}] == ["a:1", "b:2"]
    words = list(controllers.argv)
    assert words[words.index("--controllers") + 1] == "x,-y"
    assert words[words.index("--kubeconfig") + 1] == str(place.controllers_kubeconfig)
    assert "--leader-elect" in words
    assert words[-1] == "debug"
    assert made.document["controllersAdmin"] == f"http://{words[words.index('--admin-listen') + 1]}"
    assert console.events == [("info", "hello")]
    assert console.printed == b"[]"


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


async def test_readiness_trusts_the_directorys_ca_only(place):
    await run(place)
    ready = FakeSupervisor.made.roles[0].ready
    with pytest.raises(errors.Refused, match=r"ca\.crt"):
        await ready()
    place.pki.mkdir()
    place.ca_certificate.write_text("garbage")
    with pytest.raises(errors.Refused):
        await ready()
