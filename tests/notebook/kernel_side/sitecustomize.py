"""In a kernel of the tests: what the product does not wait for longer is waited for, and its stacks can be asked for.

A person at a notebook does not wait minutes for a front end or for what clean-up a stopped turn still does. A test on a
slow machine does, so that its outcome does not depend on it; what gives up at once in a test sets its own limit.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from importlib.machinery import ModuleSpec, PathFinder

LIMITS = {
    "nbagent.models.anthropic": ("FACTS_TIMEOUT_S",),
    "nbagent.notebook.host": ("CLEANUP_S",),
    "nbagent.notebook.panel.bridge": ("PONG_S", "COUNT_S"),
    "nbagent.runtime.driver": ("CLEAN_UP_S",),
}
PATIENT_S = 600.0


class Patience:
    """Finds the modules that have such a limit, and raises it when they have been imported."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in LIMITS:
            return None
        spec = PathFinder.find_spec(name, path, target)  # type: ignore[arg-type]
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def patient(module: object) -> None:
            execute(module)  # type: ignore[arg-type]
            for limit in LIMITS[name]:
                assert hasattr(module, limit), f"{name} has no {limit} any more"
                setattr(module, limit, PATIENT_S)

        spec.loader.exec_module = patient  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, Patience)
if hasattr(signal, "SIGUSR1") and (_stacks := os.environ.get("NBAGENT_TEST_STACKS")):
    import faulthandler

    with contextlib.suppress(OSError):
        faulthandler.register(signal.SIGUSR1, file=open(_stacks, "w"), all_threads=True)  # noqa: SIM115
