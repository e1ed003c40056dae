"""Kernels that are forks of one process, which has imported what the chapters import: PyTorch alone takes 4 s."""

import ast
import asyncio
import gc
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from multiprocessing.context import ForkProcess
from typing import Any
from uuid import uuid4

from ipykernel.kernelapp import IPKernelApp
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning import LocalProvisioner

from fedleak_book import paths


def warm_up(codes: Iterable[str]) -> None:
    """Import what cells import; what fails is left to the cell, which reports it. No thread is started.

    What a module does when it is imported, all kernels have, as if each of them had imported it.
    """
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as a kernel has it before it imports
    os.chdir(paths.root())  # as a kernel has it
    sys.path.insert(0, os.getcwd())
    for code in codes:
        with suppress(Exception, SystemExit):
            for node in ast.parse(code).body:
                if isinstance(node, ast.Import | ast.ImportFrom):
                    exec(compile(ast.Module([node], []), "<cell>", "exec"), {})
    del sys.path[0]
    gc.freeze()  # else each fork's first collection writes to every page


class ForkedKernelManager(AsyncKernelManager):
    """Kernel manager whose kernels are forks of this process, and otherwise what an ordinary one starts."""

    def __init__(self, **options: Any):
        super().__init__(**options)
        self.kernel_id = str(uuid4())
        self.provisioner = _ForkProvisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)


class _ForkProvisioner(LocalProvisioner):
    process: Any = None

    async def launch_kernel(self, cmd: list[str], **options: Any) -> KernelConnectionInfo:
        self.process = _Kernel(cmd[cmd.index("-f") :], options["env"])
        self.process.start()
        self.pid = self.pgid = self.process.pid
        return self.connection_info


class _Kernel(ForkProcess):
    """A kernel's process, with what a provisioner uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, arguments: list[str], environment: Mapping[str, str]):
        super().__init__()
        self._arguments, self._environment = arguments, environment

    def run(self) -> None:
        os.setsid()
        os.environ.update(self._environment)
        if torch := sys.modules.get("torch"):
            torch.seed()  # else random numbers without a seed are the same in all kernels
        asyncio.set_event_loop(asyncio.new_event_loop())  # the fork is inside a coroutine of its parent's loop
        kernel = IPKernelApp.instance(parent_handle=os.getppid())
        kernel.initialize(self._arguments)
        kernel.start()

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self) -> int | None:
        self.join()
        return self.exitcode

    def send_signal(self, number: int) -> None:
        if self.pid and self.is_alive():
            os.kill(self.pid, number)
