# SPDX-License-Identifier: Apache-2.0
"""What the tests of the house's own rules read in a module. They say what it must be; this does not."""

from __future__ import annotations

import ast
import functools
import importlib.util
import pathlib
import sys
import types

SCRIPTS = pathlib.Path(__file__).parents[1] / "scripts"


@functools.cache
def tree(content: str) -> ast.Module:
    """A module, parsed once for every rule that is asked about it: to parse the whole program takes two seconds. Nobody changes it."""
    return ast.parse(content)


def docstring(content: str) -> str:
    """The docstring of a module, without parsing the code below it: that takes a second for the whole program."""
    before, quotes, rest = content.partition('"""')
    head = f"{before}{quotes}{rest.partition(quotes)[0]}{quotes}" if quotes else before
    return ast.get_docstring(ast.parse(head)) or ""


def script(name: str) -> types.ModuleType:
    """A file of scripts/, which is no module of a package."""
    spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up by name.
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module
