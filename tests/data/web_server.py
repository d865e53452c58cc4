"""A web server for tests, with every way in which servers disappoint."""

import contextlib
import shutil
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ultralif.data.fetch import https_opener


class Handler(BaseHTTPRequestHandler):
    """The first part of a path says how to behave, the second which file is meant."""

    protocol_version = "HTTP/1.1"
    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append((self.path, self.headers.get("Range")))
        behaviour, _, name = self.path[1:].partition("/")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            getattr(self, behaviour)(self.server.files.get(name, b""))
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def send(self, body: bytes, code: int = 200, **headers: str) -> None:
        self.send_response(code)
        for key, value in ({"Content_Length": str(len(body))} | headers).items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def start(self) -> int:
        wanted = self.headers.get("Range")
        return int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0

    def good(self, data: bytes) -> None:
        start = self.start()
        if start > len(data) or (start and start == len(data)):
            self.send(b"", 416)
        elif start:
            self.send(data[start:], 206, Content_Range=f"bytes {start}-{len(data) - 1}/{len(data)}")
        else:
            self.send(data)

    def forgetful(self, data: bytes) -> None:
        """Know nothing of ranges."""
        self.send(data)

    def breaking(self, data: bytes) -> None:
        """Break off in the middle of what is left, unless little is left."""
        start = self.start()
        rest = data[start:]
        shown = rest if len(rest) < 1000 else rest[: len(rest) // 2]
        code = {"code": 206, "Content_Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        self.send(shown, **code, Content_Length=str(len(rest)))

    def dying(self, data: bytes) -> None:
        """Send a third of what is left once, then only errors."""
        if sum(path == self.path for path, _ in self.server.requests) > 1:
            self.send(b"", 503)
        else:
            self.send(data[: len(data) // 3], Content_Length=str(len(data)))

    def page(self, data: bytes) -> None:
        self.send(b"<html>please prove that you are human</html>")

    def wrong(self, data: bytes) -> None:
        self.send(data[:-1] + bytes([data[-1] ^ 1]))

    def empty(self, data: bytes) -> None:
        self.send(b"", 202)

    def absent(self, data: bytes) -> None:
        self.send(b"", 404)

    def stalled(self, data: bytes) -> None:
        self.send(data[:10], Content_Length=str(len(data)))
        time.sleep(3)

    def huge(self, data: bytes) -> None:
        self.send(data, Content_Length=str(1 << 50))

    def moved(self, data: bytes) -> None:
        self.send(b"", 302, Location=self.server.elsewhere)


class Server(ThreadingHTTPServer):
    """A server on this machine, with its files, its requests, and an opener that trusts it."""

    daemon_threads = True
    opener: urllib.request.OpenerDirector
    certificate: Path
    url: str
    elsewhere = ""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """Keep quiet about clients that went away."""


@contextlib.contextmanager
def serving(folder: Path, secure: bool = True) -> Iterator[Server | None]:
    """Run a server; None if no certificate can be made here."""
    server = Server()
    port = server.server_address[1]
    if secure:
        if shutil.which("openssl") is None:
            server.server_close()
            yield None
            return
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        server.certificate = certificate
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ]
        names = ["-addext", "subjectAltName=DNS:localhost"]
        subprocess.run(
            [*command, *names, "-keyout", str(key), "-out", str(certificate)],
            check=True,
            capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        trusting = ssl.create_default_context(cafile=str(certificate))
        server.opener = https_opener(urllib.request.HTTPSHandler(context=trusting))
    server.url = f"http{'s' if secure else ''}://localhost:{port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
