# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A command of a lit test: asks the server of the tools (`tool_server.py`) to run it.

    python -I -S tool_client.py SOCKET MODULE ARGUMENT...

There are hundreds of these, so it imports nothing that is not built in: `socket`, `json` and
`array` take as long as Python itself.
"""

import marshal
import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SHUT_WR, SOL_SOCKET, socket

STREAMS = (0, 1, 2)
DIED = 134  # what a shell says of a process that aborted


def ask(path: str, module: str, arguments: list[str]) -> int:
    """Have the server at `path` run a module with this process's files; its exit status."""
    call = marshal.dumps([module, arguments, os.getcwd(), dict(os.environ)])
    server = socket(AF_UNIX)
    server.connect(path)
    files = b"".join(stream.to_bytes(4, sys.byteorder) for stream in STREAMS)
    server.sendmsg([b"."], [(SOL_SOCKET, SCM_RIGHTS, files)])
    while call:
        call = call[server.send(call) :]
    server.shutdown(SHUT_WR)
    answer = server.recv(16)
    return int(answer) if answer else DIED


if __name__ == "__main__":
    sys.exit(ask(sys.argv[1], sys.argv[2], sys.argv[3:]))
