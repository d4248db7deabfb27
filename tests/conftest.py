"""What holds for every test: the small sizes, no window, no internet."""

import os
import socket

import pytest

os.environ["LABKIT_SIZE"] = "test"  # before labkit or any kernel starts: both read it
os.environ["MPLBACKEND"] = "Agg"
# Two tests run at a time: threads that spin while they wait for work would take the cores from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections that leave this machine, so that no test passes or fails with a far server."""
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: object) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address):
            raise OSError(f"tests use no network, but something connects to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


def is_loopback(address: object) -> bool:
    return isinstance(address, tuple) and (str(address[0]).startswith("127.") or address[0] in ("::1", "localhost"))
