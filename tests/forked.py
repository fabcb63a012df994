"""Python programs in processes of their own that need not import torch: each is forked from one that has, and nothing else.

`run` is subprocess.run for arguments of Python (`-c CODE`, `-m MODULE` or a file, and what follows). tatara isn't loaded yet in
the child, environment, folder, arguments and output are its own, and it ends as an interpreter does.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_server: tuple[int, socket.socket] | None = None  # of which process, and the way to it


def run(
    arguments: list[str], env: dict[str, str] | None = None, cwd: Path | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """What the program wrote, and how it ended. TimeoutExpired after `timeout` seconds, and the program is killed."""
    request = {"arguments": arguments, "env": dict(os.environ if env is None else env), "cwd": str(cwd or os.getcwd())}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with _request(json.dumps(request).encode(), [out.fileno(), err.fileno()]) as answers:
            child = int(answers.recv(100))
            answers.settimeout(timeout)
            try:
                code = int(answers.recv(100))
            except TimeoutError:
                os.kill(child, signal.SIGKILL)
                raise subprocess.TimeoutExpired(arguments, timeout) from None
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


def _request(text: bytes, files: list[int]) -> socket.socket:
    """Sends it to the server of this process. What comes back: the child's number, then how it ended."""
    global _server
    if _server is None or _server[0] != os.getpid():
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            command = [sys.executable, __file__, str(there.fileno())]
            process = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
        _server = os.getpid(), here
        atexit.register(_end, process, here)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs, tempfile.TemporaryFile() as body:  # an environment may be longer than a message
        body.write(text)
        body.flush()
        sent = array.array("i", [theirs.fileno(), body.fileno(), *files])
        _server[1].sendmsg([b"run"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent)])
    return ours


def _end(server: subprocess.Popen[bytes], way: socket.socket) -> None:
    way.close()
    server.wait()


def _serve(requests: socket.socket) -> None:
    """In the server: a child for each request, which goes on as that program."""
    import torch  # noqa: F401

    gc.collect()
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(requests, 100, 4)
        if not message:
            return
        child = os.fork()
        if child == 0:
            requests.close()
            _become(files)
            return
        with socket.socket(fileno=files[0]) as answers:
            answers.send(str(child).encode())
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            with contextlib.suppress(BrokenPipeError):  # nobody waits for a program that was killed
                answers.send(str(code).encode())
        for file in files[1:]:
            os.close(file)


def _become(files: list[int]) -> None:
    answers, body, out, err = files
    os.close(answers)
    with os.fdopen(body) as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    first, *rest = request["arguments"]
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[0:1] = ["", *inherited]  # first was this file's folder
    if first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = type(sys)("__main__")
        sys.modules["__main__"] = main
        exec(compile(rest[0], "<string>", "exec"), vars(main))
    elif first == "-m":
        sys.argv = [rest[0], *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(first).resolve().parent)
        sys.argv = [first, *rest]
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
