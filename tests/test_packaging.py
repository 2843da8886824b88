# SPDX-License-Identifier: Apache-2.0
"""What is installed: the metadata of the package, and the lock files that `make` installs from."""

import email.message
import importlib.metadata
import pathlib
import re
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-dev.lock")


def pins(lock: str) -> dict[str, str]:
    """The version of each package in a lock file."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+) \\\n", (ROOT / lock).read_text(), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[;]", one)[0].lower() for one in requirements}


@pytest.fixture
def metadata() -> email.message.Message:
    """Of the package as it is installed here: what the build made of pyproject.toml."""
    found = importlib.metadata.distribution("handfast").read_text("METADATA")
    assert found is not None
    return email.message_from_string(found)


def test_the_metadata_of_the_package_is_complete(metadata):
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["License"] is None
    for field in ("Summary", "Author", "Keywords", "Requires-Python", "Project-URL"):
        assert metadata[field], field
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert str(metadata.get_payload()).startswith("# Handfast\n")


def test_classifiers_name_every_supported_python_and_no_licence(metadata):
    """A licence expression and a licence classifier do not go together (PEP 639)."""
    classifiers = metadata.get_all("Classifier", [])
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in classifiers
    assert "Typing :: Typed" in classifiers
    assert not any(one.startswith("License ::") for one in classifiers)


def test_what_make_up_installs_has_no_tool_of_developers():
    installed = pins("requirements.lock").keys() | pins("requirements-build.lock").keys()
    assert names(PROJECT["project"]["dependencies"]) <= installed
    for extra in ("dev", "etcd", "mesh", "proxy"):
        assert not names(PROJECT["project"]["optional-dependencies"][extra]) & installed
    # What is tested is installed by developers, and in CI.
    for extra in ("etcd", "mesh", "proxy"):
        assert names(PROJECT["project"]["optional-dependencies"][extra]) <= pins("requirements-dev.lock").keys()


def test_the_package_is_built_with_what_is_locked():
    (wanted,) = PROJECT["build-system"]["requires"]
    name, least = wanted.split(">=")
    assert int(pins("requirements-build.lock")[name].split(".")[0]) >= int(least)


def test_lock_files_agree():
    """`make test` completes the environment of `make up`, and changes nothing in it."""
    whole = pins("requirements-dev.lock")
    for lock in LOCKS:
        assert pins(lock).items() <= whole.items(), lock


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_has_a_hash(lock):
    text = (ROOT / lock).read_text()
    assert len(re.findall(r"^\S+==\S+ \\\n    --hash=sha256:", text, re.MULTILINE)) == len(pins(lock)) > 0


def test_what_the_program_reads_beside_its_modules_is_in_the_package():
    """A file of data that no pattern names would be missing in the wheel, and only there."""
    source = ROOT / "src" / "handfast"
    named = {
        path for pattern in PROJECT["tool"]["setuptools"]["package-data"]["handfast"] for path in source.glob(pattern)
    }
    beside = {path for path in source.rglob("*") if path.is_file() and path.suffix not in {".py", ".pyc", ".so"}}
    assert source / "data" / "reasons.toml" in named
    assert sorted(str(path) for path in beside - named) == []
