"""As much of the Hugging Face Hub as uploading and downloading one repository needs, on this machine."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

__all__ = ["COMMIT", "fake_hub"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class _Handler(BaseHTTPRequestHandler):
    files: dict[str, bytes]

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        path, body = urlsplit(self.path).path, self._body()
        if path == "/api/repos/create":
            self._answer({"url": f"{self._address()}/lab/denoiser", "id": "1", "name": "lab/denoiser"})
        elif "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = [{"path": name, "uploadMode": "regular", "shouldIgnore": False, "oid": None} for name in names]
            self._answer({"files": modes})
        elif "/commit/" in path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            self._answer(
                {"success": True, "commitOid": COMMIT, "commitUrl": f"{self._address()}/lab/denoiser/commit/{COMMIT}"}
            )
        else:  # such as the check of a card's metadata
            self._answer({"errors": [], "warnings": []})

    def do_HEAD(self) -> None:
        self._file(with_body=False)

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if "/resolve/" in path:
            self._file(with_body=True)
        else:
            self._answer(
                {"id": "lab/denoiser", "sha": COMMIT, "siblings": [{"rfilename": name} for name in self.files]}
            )

    def _file(self, *, with_body: bool) -> None:
        content = self.files.get(urlsplit(self.path).path.rsplit("/", 1)[-1])
        if content is None:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if with_body:
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _address(self) -> str:
        return f"http://{self.headers['Host']}"


@contextmanager
def fake_hub() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Address of a running server, and the files of its one repository."""
    files: dict[str, bytes] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"files": files}))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", files
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
