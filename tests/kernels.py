"""How tests reach their kernels: by sockets that are files, where the system has such.

With TCP a client picks five free ports, and the kernel binds them a moment later. Who takes one in between (the tests
run side by side) ends the kernel, or, when it is the one of its output, leaves it alive and silent for ever.

As a pytest plugin (`-p tests.kernels`) it does the same for the kernels of nbval.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from functools import cache
from typing import Any

from jupyter_client.manager import KernelManager
from traitlets.config import Config

TRANSPORT = "tcp" if os.name == "nt" else "ipc"
_NUMBERS = itertools.count(1)


@cache
def runtime_folder() -> str:
    """Make this process's folder for connection files; the path of a socket has 107 characters at most."""
    folder = tempfile.mkdtemp(prefix="nb")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def reached() -> dict[str, str]:
    """Return the traits of a new `KernelManager`; without a file of its own the sockets would lie in the working folder."""
    return {"transport": TRANSPORT, "connection_file": os.path.join(runtime_folder(), f"kernel-{next(_NUMBERS)}.json")}


def config() -> Config:
    """Return the same for one client of nbclient."""
    return Config({"KernelManager": reached()})


def pytest_configure() -> None:
    from nbval import kernel

    def manager(**traits: Any) -> KernelManager:
        return KernelManager(**reached(), **traits)

    kernel.KernelManager = manager
