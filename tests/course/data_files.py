"""Files for tests of data sets: entered into the manifest, put into folders,
served on this machine.
"""

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

from course import data_sources as sources

# The discard port: nothing listens there.
CLOSED = "http://127.0.0.1:9/"

# More than one chunk of the download.
TEXT = {"timemachine.txt": b"The Time Machine, by H. G. Wells\n" * 20_000}


def entries(*names: str) -> Iterator[sources.Entry]:
    """The entries of these sets, or of all."""
    for name in names or sources.SETS:
        for form in sources.SETS[name]["forms"]:
            yield from form


def publish(name: str, contents: dict[str, bytes]) -> None:
    """Enter test files into the manifest in the place of the real ones."""
    for entry in entries(name):
        if entry["name"] in contents:
            content = contents[entry["name"]]
            algorithm = entry["checksum"].split(":")[0]
            entry["checksum"] = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
            entry["bytes"] = len(content)


def put(folder: Path, contents: dict[str, bytes]) -> Path:
    """Write the files into the folder, and return it."""
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def flipped(content: bytes, place: int = 1000) -> bytes:
    """The same bytes, but for one bit."""
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def all_files(folder: Path) -> list[Path]:
    """Every file below the folder, also hidden and temporary ones."""
    return [path for path in folder.rglob("*") if path.is_file()]


class Server:
    """A web server on this machine: a dictionary of files,
    of which ``cut`` bytes may be missing.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.encodings: set[str | None] = set()
        self.cut = 0
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever)
        self._thread.start()

    def serve(self, name: str, contents: dict[str, bytes]) -> None:
        """Publish the files of a set, with this server's addresses."""
        publish(name, contents)
        self.files.update(contents)
        for entry in entries(name):
            if "url" in entry:
                entry["url"] = f"http://127.0.0.1:{self._http.server_port}/{entry['name']}"

    def close(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/")
                server.requests.append(name)
                server.encodings.add(self.headers["Accept-Encoding"])
                if name not in server.files:
                    self.send_error(404)
                    return
                content = server.files[name]
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) - server.cut])

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        return Handler
