# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The command-line tools for lit tests, without a start of Python for each command.

A tool takes a second, most of it to import what a pass needs. The server imports that once. Each
command is a fork of it, with the arguments, environment, folder and open files of the client that
lit runs (`tool_client.py`); the client ends as the tool ends. So a command has a process of its
own, as a user's has.
"""

import gc
import marshal
import os
import socket
import sys

from support.tool_client import STREAMS

PRELOADED = ("neptune_mlir.cli.opt", "neptune_mlir.cli.main", "filecheck.main")


def preload() -> None:
    """Import what commands import."""
    import importlib
    import pkgutil

    import neptune_mlir

    for name in PRELOADED:
        importlib.import_module(name)
    apart = ("neptune_mlir.torch", "neptune_mlir.bench")
    for found in pkgutil.walk_packages(neptune_mlir.__path__, "neptune_mlir."):
        if found.name.startswith(apart) or found.name.endswith("__main__"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:  # of a package that is not asked of everybody
            if str(error.name).startswith("neptune_mlir"):
                raise
    importlib.import_module("neptune_mlir.codegen.llvm_child").start()  # one for all commands
    importlib.import_module("support.kept_code").install()
    gc.freeze()  # no command looks at what all have, which would give it pages of its own


def serve(path: str) -> None:
    """Answer until standard input ends (its writer is whoever started the server)."""
    import select

    preload()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        while sys.stdin not in select.select([sys.stdin, listener], [], [])[0]:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _run(client)
            client.close()
            _count()
        _count()


def _count() -> None:
    """Take leave of the commands that have ended: their time counts as this process's then."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:  # none is left
        pass


def _run(client: socket.socket) -> None:
    """In a new process: one command."""
    import ctypes
    import traceback

    _, files, *_ = socket.recv_fds(client, 1, len(STREAMS))
    for stream, file in zip(STREAMS, files, strict=True):
        os.dup2(file, stream)
        os.close(file)
    sys.stdin = open(0, closefd=False)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", 1, closefd=False)
    with client.makefile("rb") as sent:
        module, arguments, folder, environment = marshal.loads(sent.read())
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [module, *arguments]
    status = 1
    try:
        main = sys.modules[module].main  # all tools have one, and return a status or exit
        status = main() or 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)  # what MLIR printed
    finally:
        client.sendall(str(status).encode())
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
