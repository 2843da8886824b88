# SPDX-License-Identifier: Apache-2.0
"""How much is measured: the sizes of a full run and of a quick one. It measures nothing."""

from __future__ import annotations

import pathlib
from dataclasses import dataclass

from bench import servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Rounds, and operations per round; the cheapest cases, and close limits, have more and shorter rounds."""

    rounds: int
    short_rounds: int
    many_rounds: int
    warm_up: int
    idle_seconds: float
    gets: int
    access: int
    creates: int
    connections: int
    watchers: int
    updates: int
    updates_per_second: float
    list_objects: int
    list_seconds: float
    few_objects: int
    many_objects: int
    growth_gets: int
    growth_creates: int
    growth_lists: int
    bindings: tuple[int, ...]
    nodes: tuple[int, ...]
    start_objects: int
    starts: int
    strangers_connections: int
    # Within what strangers may ask at once from each of 16 addresses.
    strangers_gets: int
    tokens: int
    signing_tokens: int
    new_tokens: int
    expiring_tokens: int
    joins: int
    joins_alone: int
    joins_in_all: int
    few_nodes: int
    many_nodes: int
    storm_seconds: float
    machines: int
    parked: int
    open_connections: int
    followers: int
    certificates: int
    first_certificates: int
    streams: int
    stream_updates: int
    # As many as the aim is about.
    workloads: int
    proxy_seconds: int


FULL = Sizes(
    rounds=5,
    short_rounds=11,
    many_rounds=93,
    warm_up=1000,
    idle_seconds=0.5,
    gets=4000,
    access=1200,
    creates=1600,
    connections=120,
    watchers=200,
    updates=60,
    updates_per_second=50.0,
    list_objects=10_000,
    list_seconds=4.0,
    few_objects=1000,
    many_objects=100_000,
    growth_gets=5000,
    growth_creates=1500,
    growth_lists=400,
    bindings=(10, 1000, 10_000),
    nodes=(50, 500, 5000),
    start_objects=50_000,
    starts=5,
    strangers_connections=40,
    strangers_gets=800,
    tokens=10_000,
    signing_tokens=1000,
    new_tokens=200,
    expiring_tokens=100,
    joins=500,
    joins_alone=100,
    joins_in_all=5000,
    few_nodes=100,
    many_nodes=10_000,
    storm_seconds=30.0,
    machines=10_000,
    parked=10_000,
    open_connections=1000,
    followers=1000,
    certificates=1500,
    first_certificates=10_000,
    streams=1000,
    stream_updates=10,
    workloads=25,
    proxy_seconds=2,
)
QUICK = Sizes(
    rounds=2,
    short_rounds=3,
    many_rounds=3,
    warm_up=200,
    idle_seconds=0.2,
    gets=1000,
    access=400,
    creates=640,
    connections=40,
    watchers=50,
    updates=20,
    updates_per_second=50.0,
    list_objects=2000,
    list_seconds=1.0,
    few_objects=1000,
    many_objects=10_000,
    growth_gets=500,
    growth_creates=200,
    growth_lists=50,
    bindings=(10, 1000, 10_000),
    nodes=(50, 500),
    start_objects=5000,
    starts=1,
    strangers_connections=40,
    strangers_gets=400,
    tokens=2000,
    signing_tokens=1000,
    new_tokens=40,
    expiring_tokens=50,
    joins=100,
    joins_alone=20,
    joins_in_all=500,
    few_nodes=100,
    many_nodes=2000,
    storm_seconds=5.0,
    machines=10_000,
    parked=1000,
    open_connections=200,
    followers=100,
    certificates=600,
    first_certificates=1000,
    streams=200,
    stream_updates=3,
    workloads=3,
    proxy_seconds=1,
)


@dataclass(frozen=True, slots=True)
class Pair:
    """An empty control plane and the floor beside it."""

    plane: servers.Server
    floor: servers.Server


@dataclass(frozen=True, slots=True)
class Run:
    """One run: how much, and a directory to work in."""

    sizes: Sizes
    directory: pathlib.Path
