"""`sfumato` and `python` that start at once, for pages with many commands: forks of a process that has imported torch.

Each command is a process of its own, with its own arguments, folder, environment and streams. Only the seconds are
saved that every one of them would spend on imports. Run as a script, this is the process that is forked.
"""

import array
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["warm_programs"]

IMPORTED = ("sfumato.training.train", "sfumato.restoration.run", "torch._dynamo", "torch.utils.tensorboard")
"""What most commands import, or torch for them: the first optimizer imports its compiler."""
CLIENT = """#!{python} -IS
import array, json, os, socket, sys
asked = json.dumps(["{program}", sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    streams = array.array("i", [0, 1, 2])
    server.sendmsg([len(asked).to_bytes(8, "little")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    server.sendall(asked)
    code = server.recv(1)
os._exit(code[0] if code else 70)
"""


@contextmanager
def warm_programs() -> Iterator[Path]:
    """A folder with both programs, to be put first into PATH."""
    with tempfile.TemporaryDirectory() as name:  # addresses of sockets have to be short
        folder, address = Path(name), f"{name}/server"
        for program in ("sfumato", "python"):
            client = folder / program
            client.write_text(CLIENT.format(python=sys.executable, program=program, address=address))
            client.chmod(0o755)
        server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.DEVNULL)
        try:
            while not Path(address).exists():
                assert server.poll() is None, "the server ended"
                time.sleep(0.05)
            yield folder
        finally:
            server.terminate()
            server.wait()


def serve(address: str) -> None:
    """Fork once for every connection, for ever."""
    for module in IMPORTED:
        with suppress(ImportError):  # of an extra that is not installed
            importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address + ".new")
    listener.listen()
    Path(address + ".new").rename(address)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            answer(connection)
        connection.close()
        while os.waitpid(-1, os.WNOHANG)[0]:  # those that have ended
            pass


def answer(connection: socket.socket) -> None:
    """Run a command in a fork of this one, so that its exit code can be told, and end."""
    streams = array.array("i")
    length, ((_, _, sent),), *_ = connection.recvmsg(8, socket.CMSG_SPACE(3 * streams.itemsize))
    streams.frombytes(sent)
    asked = b""
    while len(asked) < int.from_bytes(length, "little"):
        asked += connection.recv(2**16)
    child = os.fork()
    if child == 0:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        run(*json.loads(asked))
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.send(bytes([code % 256]))
    os._exit(0)


def run(program: str, arguments: list[str], folder: str, environment: dict[str, str]) -> None:
    """What the program does with its arguments; ends the process."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    try:
        if program == "python":
            flag, code = arguments
            assert flag == "-c"
            sys.argv = ["-c"]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        else:
            from sfumato.cli import main

            sys.argv = ["sfumato", *arguments]
            main()
        ended = 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        ended = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
        ended = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)


if __name__ == "__main__":
    serve(sys.argv[1])
