"""Files of the data sets: order of sources, checksums, downloads from this machine, faults."""

import inspect
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from data_files import CLOSED, TEXT, Server, all_files, entries, flipped, publish, put, sha1

from course import data
from course import data_sources as sources

GOOD = TEXT["timemachine.txt"]
BAD = flipped(GOOD)

pytestmark = pytest.mark.usefixtures("cache")


def assert_in_order(parts: Iterable[str], text: str) -> None:
    """Each part stands in the text, after the one before it."""
    place = 0
    for part in parts:
        assert part in text[place:], f"{part!r} is missing in {text[place:]!r}"
        place = text.index(part, place) + len(part)


# The manifest


@pytest.fixture
def manifest(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Checksum by address, or by name where there is no address, as they are shipped."""
    monkeypatch.undo()
    return {entry.get("url", entry["name"]): entry["checksum"] for entry in entries()}


def test_manifest_agrees_with_torchvision(manifest: dict[str, str]) -> None:
    from torchvision.datasets import CIFAR10, FashionMNIST

    assert manifest[CIFAR10.url] == f"md5:{CIFAR10.tgz_md5}"
    for name, md5 in CIFAR10.train_list + CIFAR10.test_list:
        assert manifest[f"{CIFAR10.base_folder}/{name}"] == f"md5:{md5}"
    for name, md5 in FashionMNIST.resources:
        assert manifest[FashionMNIST.mirrors[0] + name] == f"md5:{md5}"


def test_manifest_agrees_with_d2l(manifest: dict[str, str]) -> None:
    from d2l import torch as d2l

    url, checksum = d2l.DATA_HUB["airfoil"]
    assert manifest[url] == f"sha1:{checksum}"
    text = manifest[d2l.DATA_URL + "timemachine.txt"].removeprefix("sha1:")
    assert text in inspect.getsource(d2l.TimeMachine)


def test_data_card_shows_the_manifest() -> None:
    card = (Path(__file__).parents[2] / "data" / "README.md").read_text(encoding="utf-8")
    for name, spec in sources.SETS.items():
        assert f"`{name}`" in card
        assert spec["licence"] in card and spec["origin"] in card
    for entry in entries():
        assert Path(entry["name"]).name in card
        assert entry["checksum"].split(":")[1] in card


# Order of sources


def test_sources_in_order(
    server: Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve("time_machine", TEXT)
    own = put(tmp_path / "own", TEXT)
    monkeypatch.setenv("LABKIT_DATA", str(own))
    assert sources.files("time_machine") == [own / "timemachine.txt"]
    monkeypatch.delenv("LABKIT_DATA")
    put(cache, TEXT)
    assert sources.files("time_machine") == [cache / "timemachine.txt"]
    assert server.requests == []
    (cache / "timemachine.txt").unlink()
    assert sources.files("time_machine") == [cache / "timemachine.txt"]
    assert server.requests == ["timemachine.txt"]


def test_own_damaged_file_is_named_and_left(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.serve("time_machine", TEXT)
    own = put(tmp_path / "own", {"timemachine.txt": BAD})
    monkeypatch.setenv("LABKIT_DATA", str(own))
    assert data.time_machine().encode() == GOOD
    message = capsys.readouterr().err
    file = own / "timemachine.txt"
    assert_in_order([str(file), sha1(GOOD), sha1(BAD), "not used and left as it is"], message)
    assert file.read_bytes() == BAD and all_files(own) == [file]


def test_own_folder_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"LABKIT_DATA=.*nowhere"):
        data.cifar10()


def test_cache_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert sources.cache_dir() == Path(__file__).parents[2] / "data" / "cache"
    installed = tmp_path / "site-packages" / "labkit" / "sources.py"
    monkeypatch.setattr(sources, "__file__", str(installed))
    assert sources.cache_dir() == Path.home() / ".cache" / "labkit"


# Downloads


def test_download_is_kept(server: Server, cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.serve("time_machine", TEXT)
    first = data.time_machine()
    assert first.encode() == GOOD
    assert data.time_machine() == first
    assert server.requests == ["timemachine.txt"]
    assert server.encodings == {"identity"}
    assert all_files(cache) == [cache / "timemachine.txt"]
    assert "timemachine.txt'" not in capsys.readouterr().err


def test_download_can_be_read_by_others(server: Server, cache: Path) -> None:
    server.serve("time_machine", TEXT)
    data.time_machine()
    mode = stat.S_IMODE((cache / "timemachine.txt").stat().st_mode)
    assert mode == stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IROTH


class Bar:
    """In the place of a progress bar: what it was told."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.total: int | None = None
        self.updates: list[int] = []
        self.closed = False

    def update(self, n: int) -> None:
        self.updates.append(n)

    def reset(self) -> None:
        self.updates.clear()

    def close(self) -> None:
        self.closed = True


def test_download_shows_its_progress(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.serve("time_machine", TEXT)
    bars = []
    monkeypatch.setattr(
        sources, "progress", lambda **options: bars.append(Bar(**options)) or bars[-1]
    )
    data.time_machine()
    (bar,) = bars
    assert bar.options["desc"] == "timemachine.txt" and bar.options["unit"] == "B"
    assert bar.total == sum(bar.updates) == len(GOOD)
    assert bar.closed


def test_interrupt_leaves_no_half_file(
    server: Server, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve("time_machine", TEXT)
    bars = []

    class Interrupted(Bar):
        def update(self, n: int) -> None:
            bars.append(self)
            if len(bars) == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(sources, "progress", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            data.time_machine()
    assert len(bars) == 2 and bars[0].closed
    assert all_files(cache) == []
    assert data.time_machine().encode() == GOOD


# Faults


def test_flipped_byte_is_named_and_fetched_again(
    server: Server, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.serve("time_machine", TEXT)
    put(cache, {"timemachine.txt": BAD})
    file = cache / "timemachine.txt"
    assert data.time_machine().encode() == GOOD
    assert file.read_bytes() == GOOD
    assert_in_order([str(file), sha1(GOOD), sha1(BAD), "not used."], capsys.readouterr().err)


def test_flipped_byte_without_network_is_an_error(cache: Path) -> None:
    publish("time_machine", TEXT)
    put(cache, {"timemachine.txt": BAD})
    file = cache / "timemachine.txt"
    with pytest.raises(OSError, match="cannot be fetched again") as raised:
        data.time_machine()
    assert_in_order([str(file), sha1(GOOD), sha1(BAD), CLOSED, "LABKIT_DATA"], str(raised.value))
    assert all_files(cache) == [file] and file.read_bytes() == BAD


def test_damaged_images_are_never_replaced_by_the_stand_in(cache: Path) -> None:
    put(cache, {"cifar-10-python.tar.gz": b"not an archive"})
    with pytest.raises(OSError, match="c58f30108f718f92721af3b95e74349a expected"):
        data.cifar10(size=10)


def test_damaged_download_is_not_kept(server: Server, cache: Path) -> None:
    server.serve("time_machine", TEXT)
    server.files["timemachine.txt"] = bad = flipped(GOOD, -1)
    with pytest.raises(OSError, match="is another file") as raised:
        data.time_machine()
    assert not isinstance(raised.value, ConnectionError)
    assert_in_order(["timemachine.txt", sha1(GOOD), sha1(bad), "try again"], str(raised.value))
    assert all_files(cache) == []
    server.files = TEXT
    assert data.time_machine().encode() == GOOD


def test_download_that_breaks_off_is_not_kept(server: Server, cache: Path) -> None:
    server.serve("time_machine", TEXT)
    server.cut = 1
    with pytest.raises(ConnectionError, match="cannot be reached"):
        data.time_machine()
    assert all_files(cache) == []
    server.cut = 0
    assert data.time_machine().encode() == GOOD


@pytest.mark.parametrize("load", [data.time_machine, data.airfoil])
def test_no_network_names_the_set_and_the_way_out(load: Callable[[], Any], cache: Path) -> None:
    reason = r"cannot be reached \(\[Errno \d+\] Connection refused\)"
    words = rf"^{load.__name__}: {CLOSED}\S* {reason}.*LABKIT_DATA"
    with pytest.raises(ConnectionError, match=words):
        load()
    assert all_files(cache) == []


def test_missing_page_is_no_network(server: Server) -> None:
    server.serve("time_machine", TEXT)
    server.files = {}
    with pytest.raises(ConnectionError, match="404"):
        data.time_machine()


def test_cache_that_cannot_be_written_is_no_network(server: Server, cache: Path) -> None:
    server.serve("time_machine", TEXT)
    cache.write_text("a file where the folder should be")
    with pytest.raises(OSError, match="cache") as raised:
        data.time_machine()
    assert not isinstance(raised.value, ConnectionError)
