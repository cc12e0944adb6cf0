"""Build hook: the JupyterLab panel goes into wheel and sdist; where it was not built and there is no node, it says so.

Not in an editable install: there `tools/build_labextension.py --link` makes the panel, so that it can be built anew.
NBAGENT_PANEL=asis takes what is built and builds nothing.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUILT = "nbagent/labextension"
SHARE = "share/jupyter/labextensions/nbagent"


class PanelBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the built panel to what is packed."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the panel where that is possible, and name its files."""
        if version == "editable":
            return
        script = Path(self.root) / "tools" / "build_labextension.py"
        if script.is_file() and os.environ.get("NBAGENT_PANEL") != "asis":
            builder = _loaded(script)
            try:
                builder.build()
            except builder.NoNode as missing:
                self.app.display_warning(f"The JupyterLab panel was not built: {missing}.")
        if not (Path(self.root) / BUILT / "package.json").is_file():
            self.app.display_warning("This package holds no JupyterLab panel; everything else works without it.")
        elif self.target_name == "wheel":
            build_data["shared_data"][BUILT] = SHARE
        else:
            build_data["artifacts"].append(f"/{BUILT}/**")


def _loaded(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_labextension", script)
    if spec is None or spec.loader is None:
        raise ImportError(f"{script} cannot be loaded")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
