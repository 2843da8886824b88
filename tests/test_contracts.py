# SPDX-License-Identifier: Apache-2.0
"""The import contracts fail when they should: each case adds one import, or one room, that is not there.

What they say is in .importlinter. That they hold is `lint-imports`' to show.
"""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import grimp
import pytest
from importlinter import configuration
from importlinter.application import use_cases
from importlinter.domain.contract import registry

CONFIGURATION = pathlib.Path(__file__).parents[1] / ".importlinter"
LAYERS = "Imports only ever point down"
LIBRARY = "The HTTP library enters through named doors"
FACE = "A role uses serving by its face"
GATE = "What comes before a request is nobody's but serving's"
API = "Inside api, imports only point down"
APISERVER = "Inside apiserver, imports only point down"
SUB_ROOMS = "Inside controllers, imports only point down"
CONTROLLERS = "Controllers do not know one another"
STORE = "Store engines know their contract, never one another"
CRYPTOGRAPHY = "Only pki touches the cryptography library"
GRPC = "gRPC enters through wire"


@pytest.fixture(scope="module")
def imports() -> grimp.ImportGraph:
    return grimp.build_graph("handfast", include_external_packages=True, cache_dir=None)


@pytest.fixture(scope="module")
def options() -> Any:
    configuration.configure()
    read = use_cases.read_user_options(config_filename=str(CONFIGURATION))
    use_cases._register_contract_types(read)
    return read


def is_kept(options: Any, name: str, graph: grimp.ImportGraph) -> bool:
    row = next(row for row in options.contracts_options if row["name"] == name)
    kind: Any = registry.get_contract_class(row["type"])
    contract = kind(name=name, session_options=options.session_options, contract_options=row)
    return bool(contract.check(graph=graph, verbose=False).kept)


@pytest.mark.parametrize(
    "name", [LAYERS, LIBRARY, FACE, GATE, API, APISERVER, SUB_ROOMS, CONTROLLERS, STORE, CRYPTOGRAPHY, GRPC]
)
def test_it_holds(imports, options, name):
    assert is_kept(options, name, copy.deepcopy(imports))


@pytest.mark.parametrize(
    ("importer", "imported", "name"),
    [
        ("node.agent", "handfast.apiserver.calls", LAYERS),
        ("controllers.loop", "handfast.node.agent", LAYERS),
        ("serving.service", "handfast.apiserver.pipeline", LAYERS),
        ("serving.service", "handfast.client.transport", LAYERS),
        ("telemetry.health", "handfast.serving.service", LAYERS),
        ("node.endpoint", "aiohttp", LIBRARY),
        ("telemetry.health", "aiohttp", LIBRARY),
        ("node.endpoint", "handfast.serving.listener", FACE),
        ("controllers.loop", "handfast.serving.aiohttp_parts", FACE),
        ("apiserver.pipeline", "handfast.serving.gate", GATE),
        ("assembly.apiserver", "handfast.serving.unread", GATE),
        ("rules.access", "handfast.client.api", LAYERS),
        ("api.schema.scalars", "handfast.api.validation.pods", API),
        ("apiserver.access.authn", "handfast.apiserver.admission.plugin", APISERVER),
        ("controllers.cluster.root_ca", "handfast.controllers.joining.cluster_info", SUB_ROOMS),
        ("controllers.cluster.root_ca", "handfast.controllers.cluster.namespace", CONTROLLERS),
        ("store.protocol", "handfast.store.sqlite.engine", STORE),
        ("client.api", "cryptography", CRYPTOGRAPHY),
        ("controllers.loop", "grpc", GRPC),
        ("client.api", "google", GRPC),
        ("proxy.envoy", "envoy", GRPC),
        ("proxy.envoy", "handfast.mesh.cluster", LAYERS),
        ("wire.server", "handfast.serving.service", LAYERS),
        ("wire.server", "handfast.client.api", LAYERS),
    ],
)
def test_a_wrong_import_is_refused(imports, options, importer, imported, name):
    graph = copy.deepcopy(imports)
    graph.add_import(importer=f"handfast.{importer}", imported=imported)
    assert not is_kept(options, name, graph)


@pytest.mark.parametrize(
    ("room", "name"),
    [
        ("attic", LAYERS),
        ("api.attic", API),
        ("apiserver.attic", APISERVER),
        ("controllers.attic", SUB_ROOMS),
        ("store.attic", STORE),
    ],
)
def test_a_room_without_a_place_is_refused(imports, options, room, name):
    graph = copy.deepcopy(imports)
    graph.add_module(f"handfast.{room}")
    assert not is_kept(options, name, graph)
