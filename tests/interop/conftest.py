# SPDX-License-Identifier: Apache-2.0
"""One control plane for each worker, a fresh namespace for each test, kubectl and the official Python client."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client, config

from tests.interop import manifests, running

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[running.ControlPlane]:
    plane = running.ControlPlane(tmp_path_factory.mktemp("up") / "data")
    yield plane
    plane.stop()
    # Every test of the session was a chance to confuse the server.
    assert plane.failures() == []


@pytest.fixture(scope="session")
def api(control_plane: running.ControlPlane) -> Iterator[client.ApiClient]:
    with config.new_client_from_config(str(control_plane.kubeconfig), persist_config=False) as found:
        yield found


@pytest.fixture(scope="session")
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


@pytest.fixture
def apps(api: client.ApiClient) -> client.AppsV1Api:
    return client.AppsV1Api(api)


@pytest.fixture
def rules(api: client.ApiClient) -> client.RbacAuthorizationV1Api:
    return client.RbacAuthorizationV1Api(api)


@pytest.fixture
def coordination(api: client.ApiClient) -> client.CoordinationV1Api:
    return client.CoordinationV1Api(api)


@pytest.fixture
def namespace(core: Any) -> str:
    """A namespace of the test's own, with what the controllers put into each."""
    name = f"test-{next(_numbers)}"
    core.create_namespace({"metadata": {"name": name}})
    running.eventually(lambda: core.list_namespaced_config_map(name).items, f"kube-root-ca.crt in {name}")
    running.eventually(lambda: core.list_namespaced_service_account(name).items, f"a service account in {name}")
    return name


@pytest.fixture
def unique() -> str:
    """A name for what has no namespace."""
    return f"unique-{next(_numbers)}"


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def kubectl_found() -> tuple[str, tuple[int, int]]:
    return running.find_kubectl()


@pytest.fixture
def kubectl(
    control_plane: running.ControlPlane,
    kubectl_found: tuple[str, tuple[int, int]],
    kubectl_home: pathlib.Path,
    namespace: str,
) -> running.Kubectl:
    """kubectl in the test's own namespace."""
    binary, version = kubectl_found
    return running.Kubectl(binary, kubectl_home, control_plane.kubeconfig, version, namespace)


@pytest.fixture
def full(kubectl: running.Kubectl) -> running.Kubectl:
    """kubectl in a namespace with one of each of the usual kinds."""
    kubectl("create", "-f", "-", stdin=manifests.USUAL)
    return kubectl
