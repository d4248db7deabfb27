"""Data sets: order of sources, checksums, downloads from a server on this machine, faults, real files if any."""

import copy
import gzip
import hashlib
import http.server
import io
import os
import pickle
import random
import tarfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from labkit import data

CLOSED = "http://127.0.0.1:9/"  # the discard port: nothing listens there
REAL = os.environ.get("LABKIT_DATA")
SHIPPED = data.SETS  # the fixture below puts a copy in its place
needs_real_files = pytest.mark.skipif(not REAL, reason="LABKIT_DATA is not set")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no LABKIT_DATA, and a copy of the manifest whose addresses do not answer."""
    monkeypatch.delenv("LABKIT_DATA", raising=False)
    monkeypatch.setattr(data, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(data, "SETS", copy.deepcopy(data.SETS))
    for entry in entries(data.SETS):
        if "url" in entry:
            entry["url"] = CLOSED + entry["name"]
    return tmp_path / "cache"


def entries(sets: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield from (entry for spec in sets.values() for form in spec["forms"] for entry in form)


def publish(name: str, contents: dict[str, bytes]) -> None:
    """Enter test files into the manifest in the place of the real ones."""
    for entry in entries({name: data.SETS[name]}):
        if entry["name"] in contents:
            content = contents[entry["name"]]
            algorithm = entry["checksum"].split(":")[0]
            entry["checksum"] = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}"
            entry["bytes"] = len(content)


def put(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def server() -> Iterator[SimpleNamespace]:
    """A web server on this machine: `files` by name, `requests` so far, `cut` bytes missing at each answer's end."""
    state = SimpleNamespace(files={}, requests=[], cut=0)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(self.path[1:])
            content = state.files.get(self.path[1:])
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - state.cut])

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()

        def serve(name: str, contents: dict[str, bytes]) -> None:
            publish(name, contents)
            state.files.update(contents)
            for entry in entries({name: data.SETS[name]}):
                if "url" in entry:
                    entry["url"] = f"http://127.0.0.1:{running.server_port}/{entry['name']}"

        state.serve = serve
        yield state
        running.shutdown()
        thread.join()


TEXT = {
    "timemachine.txt": b"The Time Machine, by H. G. Wells\n" * 20_000
}  # more than one chunk of the download


def flipped(content: bytes, place: int = 1000) -> bytes:
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def sha1(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def left_over(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() or path.name.startswith(".part-")]


# ------------------------------------------------------------------------------------------------------- the manifest


def manifest() -> dict[str, str]:
    """Checksum by address, or by name where there is no address."""
    return {entry.get("url", entry["name"]): entry["checksum"] for entry in entries(SHIPPED)}


def test_manifest_agrees_with_torchvision() -> None:
    from torchvision.datasets import CIFAR10, FashionMNIST

    known = manifest()
    assert known[CIFAR10.url] == f"md5:{CIFAR10.tgz_md5}"
    for name, md5 in CIFAR10.train_list + CIFAR10.test_list:
        assert known[f"{CIFAR10.base_folder}/{name}"] == f"md5:{md5}"
    for name, md5 in FashionMNIST.resources:
        assert known[FashionMNIST.mirrors[0] + name] == f"md5:{md5}"


def test_manifest_agrees_with_d2l() -> None:
    import inspect

    from d2l import torch as d2l

    known = manifest()
    url, checksum = d2l.DATA_HUB["airfoil"]
    assert known[url] == f"sha1:{checksum}"
    assert known[d2l.DATA_URL + "timemachine.txt"].removeprefix("sha1:") in inspect.getsource(
        d2l.TimeMachine
    )


def test_data_card_shows_the_manifest() -> None:
    card = (Path(__file__).parents[2] / "data" / "README.md").read_text(encoding="utf-8")
    for name, spec in data.SETS.items():
        assert f"`{name}`" in card and spec["licence"] in card and spec["origin"] in card
    for entry in entries(data.SETS):
        assert Path(entry["name"]).name in card and entry["checksum"].split(":")[1] in card


# ------------------------------------------------------------------------------------------------ downloads and faults


def test_download_is_kept(
    server: SimpleNamespace, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.serve("time_machine", TEXT)
    first = data.time_machine()
    assert first.encode() == TEXT["timemachine.txt"]
    assert data.time_machine() == first
    assert server.requests == ["timemachine.txt"]
    assert left_over(cache) == [cache / "timemachine.txt"]
    assert "timemachine.txt" in capsys.readouterr().err  # the progress bar


def test_flipped_byte_is_named_and_fetched_again(
    server: SimpleNamespace, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.serve("time_machine", TEXT)
    bad = flipped(TEXT["timemachine.txt"])
    put(cache, {"timemachine.txt": bad})
    assert data.time_machine().encode() == TEXT["timemachine.txt"]
    assert (cache / "timemachine.txt").read_bytes() == TEXT["timemachine.txt"]
    message = capsys.readouterr().err
    assert all(
        part in message
        for part in (str(cache / "timemachine.txt"), sha1(TEXT["timemachine.txt"]), sha1(bad))
    )


def test_flipped_byte_without_network_is_an_error(cache: Path) -> None:
    publish("time_machine", TEXT)
    bad = flipped(TEXT["timemachine.txt"])
    put(cache, {"timemachine.txt": bad})
    with pytest.raises(OSError, match="cannot be fetched again") as raised:
        data.time_machine()
    for part in (
        str(cache / "timemachine.txt"),
        sha1(TEXT["timemachine.txt"]),
        sha1(bad),
        "LABKIT_DATA",
    ):
        assert part in str(raised.value)
    assert (cache / "timemachine.txt").read_bytes() == bad


def test_damaged_images_are_never_replaced_by_the_stand_in(cache: Path) -> None:
    put(cache, {"cifar-10-python.tar.gz": b"not an archive"})
    with pytest.raises(OSError, match="c58f30108f718f92721af3b95e74349a expected"):
        data.cifar10(size=10)


@pytest.mark.parametrize("fault", ["flipped", "cut short"])
def test_damaged_download_is_not_kept(server: SimpleNamespace, cache: Path, fault: str) -> None:
    server.serve("time_machine", TEXT)
    if fault == "flipped":
        server.files["timemachine.txt"] = flipped(TEXT["timemachine.txt"], -1)
    else:
        server.cut = 1
    with pytest.raises(OSError, match=r"timemachine\.txt|cannot be reached") as raised:
        data.time_machine()
    if fault == "flipped":
        assert sha1(TEXT["timemachine.txt"]) in str(raised.value)
        assert sha1(server.files["timemachine.txt"]) in str(raised.value)
    assert left_over(cache) == []
    server.cut, server.files = 0, TEXT
    assert data.time_machine().encode() == TEXT["timemachine.txt"]


def test_interrupt_leaves_no_half_file(
    server: SimpleNamespace, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve("time_machine", TEXT)
    updates = []

    class Interrupted(data.tqdm):
        def update(self, n: float = 1) -> None:
            updates.append(n)
            if len(updates) == 2:
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(data, "tqdm", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            data.time_machine()
    assert len(updates) == 2
    assert left_over(cache) == []
    assert data.time_machine().encode() == TEXT["timemachine.txt"]


@pytest.mark.parametrize("load", [data.time_machine, data.airfoil])
def test_no_network_names_the_set_and_the_way_out(load: Callable[[], Any], cache: Path) -> None:
    with pytest.raises(
        ConnectionError, match=rf"^{load.__name__}: {CLOSED}.*cannot be reached.*LABKIT_DATA"
    ):
        load()
    assert left_over(cache) == []


def test_missing_page_is_no_network(server: SimpleNamespace) -> None:
    server.serve("time_machine", TEXT)
    server.files = {}
    with pytest.raises(ConnectionError, match="404"):
        data.time_machine()


def test_stand_in_for_images(capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = data.cifar10(size=60)
    assert (
        images.shape == (60, 3, 32, 32)
        and images.dtype == torch.uint8
        and labels.bincount().tolist() == [6] * 10
    )
    message = capsys.readouterr().err
    assert (
        "STAND-IN" in message
        and "digits" in message
        and "LABKIT_DATA" in message
        and "cifar10-jpeg.tar.xz" in message
    )
    assert [len(data.cifar10(train)[1]) for train in (True, False)] == [1500, 297]
    assert len(data.cifar10(size=50_000)[1]) == 1500  # cut to what there is, and said
    assert "1500 of scikit-learn's digits" in capsys.readouterr().err

    pictures, kinds = data.fashion_mnist(False, size=30)
    assert pictures.shape == (30, 1, 28, 28) and kinds.bincount().tolist() == [3] * 10
    files, same = data.cifar10_jpeg(size=60)
    assert files[0][:2] == b"\xff\xd8" and torch.equal(same, labels)


def test_stand_in_of_train_and_test_is_apart() -> None:
    train, test = (
        {image.numpy().tobytes() for image in data.fashion_mnist(train)[0]}
        for train in (True, False)
    )
    assert (len(train), len(test)) == (1500, 297) and train.isdisjoint(test)


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="scikit-learn"):
        data.digits()
    with pytest.raises(ConnectionError, match=r"fashion_mnist: .*LABKIT_DATA"):
        data.fashion_mnist()


# ---------------------------------------------------------------------------------------------------- order of sources


def test_sources_in_order(
    server: SimpleNamespace, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve("time_machine", TEXT)
    own = put(tmp_path / "own", TEXT)
    monkeypatch.setenv("LABKIT_DATA", str(own))
    assert data.files("time_machine") == [own / "timemachine.txt"]
    monkeypatch.delenv("LABKIT_DATA")
    put(cache, TEXT)
    assert data.files("time_machine") == [cache / "timemachine.txt"]
    assert server.requests == []
    (cache / "timemachine.txt").unlink()
    assert data.files("time_machine") == [cache / "timemachine.txt"]
    assert server.requests == ["timemachine.txt"]


def test_own_damaged_file_is_named_and_left(
    server: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.serve("time_machine", TEXT)
    bad = flipped(TEXT["timemachine.txt"])
    own = put(tmp_path / "own", {"timemachine.txt": bad})
    monkeypatch.setenv("LABKIT_DATA", str(own))
    assert data.time_machine().encode() == TEXT["timemachine.txt"]
    message = capsys.readouterr().err
    assert (
        str(own / "timemachine.txt") in message
        and sha1(bad) in message
        and "left as it is" in message
    )
    assert sha1(TEXT["timemachine.txt"]) in message
    assert (own / "timemachine.txt").read_bytes() == bad and len(list(own.iterdir())) == 1


def test_own_folder_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"LABKIT_DATA=.*nowhere"):
        data.cifar10()


def test_cache_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert data.cache_dir() == Path(__file__).parents[2] / "data" / "cache"
    monkeypatch.setattr(data, "__file__", str(tmp_path / "site-packages" / "labkit" / "data.py"))
    assert data.cache_dir() == Path.home() / ".cache" / "labkit"


# --------------------------------------------------------------------------------------------------------- image sets


def batch(labels: list[int]) -> bytes:
    """A pickle in the form of CIFAR-10's: images of one grey each, which tells the label."""
    pixels = np.repeat(np.array(labels, dtype=np.uint8)[:, None] * 25, 3072, axis=1)
    return pickle.dumps({b"data": pixels, b"labels": labels})


LABELS = [label for label in range(10) for _ in range(8)]
BATCHES = {f"cifar-10-batches-py/data_batch_{i}": batch(LABELS) for i in range(1, 6)}
BATCHES["cifar-10-batches-py/test_batch"] = batch(LABELS[::-1])


def archive(contents: dict[str, bytes], mode: str) -> bytes:
    with tarfile.open(fileobj=(buffer := io.BytesIO()), mode=mode) as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def jpeg(grey: int) -> bytes:
    Image.new("RGB", (32, 32), (grey, grey, grey)).save(buffer := io.BytesIO(), "JPEG", quality=75)
    return buffer.getvalue()


ORIGINAL = {"cifar-10-python.tar.gz": archive(BATCHES, "w:gz")}
JPEG = {
    "cifar10-jpeg.tar.xz": archive(
        {
            f"{split}/{category}/{i:04}.jpg": jpeg(label * 25)
            for split, count in (("train", 40), ("test", 8))
            for label, category in enumerate(data.CIFAR10_CLASSES)
            for i in range(count)
        },
        "w:xz",
    )
}


@pytest.fixture(params=["archive", "folder", "jpeg"])
def cifar(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    contents = {"archive": ORIGINAL, "folder": BATCHES, "jpeg": JPEG}[request.param]
    publish("cifar10", contents)
    monkeypatch.setenv("LABKIT_DATA", str(put(tmp_path / "own", contents)))
    return request.param


def assert_aligned(images: torch.Tensor, labels: torch.Tensor) -> None:
    assert (images.double().mean((1, 2, 3)) - labels * 25).abs().max() <= 2  # JPEG is lossy


def test_cifar10_from_each_form(cifar: str) -> None:
    for train, count in ((True, 400), (False, 80)):
        images, labels = data.cifar10(train)
        assert (
            images.shape == (count, 3, 32, 32)
            and images.dtype == torch.uint8
            and images.is_contiguous()
        )
        assert labels.dtype == torch.int64 and labels.bincount().tolist() == [count // 10] * 10
        assert_aligned(images, labels)
        files, same = data.cifar10_jpeg(train)
        assert len(files) == count and torch.equal(labels, same)
        decoded = [np.asarray(Image.open(io.BytesIO(file))).transpose(2, 0, 1) for file in files]
        assert_aligned(torch.from_numpy(np.stack(decoded)), labels)


def test_size_is_a_balanced_beginning(cifar: str) -> None:
    images, labels = data.cifar10()
    some, kinds = data.cifar10(size=25)
    assert torch.equal(some, images[:25]) and torch.equal(kinds, labels[:25])
    assert kinds[:20].bincount().tolist() == [2] * 10 and kinds.bincount().max() == 3
    assert kinds[:10].tolist() != kinds[10:20].tolist()  # shuffled
    files, same = data.cifar10_jpeg(size=25)
    assert torch.equal(same, kinds) and list(files) == list(data.cifar10_jpeg()[0][:25])
    assert all(isinstance(file, bytes) and file.endswith(b"\xff\xd9") for file in files)


def test_archive_is_read_once(cifar: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = (data.cifar10()[0], data.cifar10_jpeg()[0])

    def again(*args: object) -> None:
        raise AssertionError("read or converted again")

    for name in ("_read_jpeg", "_read_original", "_converted"):
        monkeypatch.setattr(data, name, again)
    images, files = data.cifar10()[0], data.cifar10_jpeg()[0]
    assert torch.equal(images, wanted[0]) and (files == wanted[1]).all()
    assert len(left_over(cache)) == 2  # as read, and converted


def test_damaged_pack_is_made_again(
    cifar: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = data.cifar10()[0]
    packs = left_over(cache)
    intact = {path: path.read_bytes() for path in packs}
    for path, content in intact.items():
        path.write_bytes(flipped(content))
    assert torch.equal(data.cifar10()[0], wanted)
    message = capsys.readouterr().err
    for path, content in intact.items():
        assert path.read_bytes() == content
        assert (
            path.name in message and sha1(content) in message and sha1(flipped(content)) in message
        )


def test_first_use_by_several_threads(cifar: str, cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: data.cifar10(size=40)[0], range(4)))
    assert all(torch.equal(result, results[0]) for result in results)
    assert len(left_over(cache)) == 1


def test_only_what_is_asked_for_is_decoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish("cifar10", JPEG)
    monkeypatch.setenv("LABKIT_DATA", str(put(tmp_path / "own", JPEG)))
    opened = []
    real = Image.open
    monkeypatch.setattr(Image, "open", lambda file: opened.append(1) or real(file))
    data.cifar10(size=30)
    assert len(opened) == 30


def test_lossless_form_comes_first(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish("cifar10", ORIGINAL | JPEG)
    own = put(tmp_path / "own", ORIGINAL | JPEG)
    monkeypatch.setenv("LABKIT_DATA", str(own))
    assert data.files("cifar10") == [own / "cifar-10-python.tar.gz"]


def idx(values: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">i4").tobytes()
    return gzip.compress(header + values.astype(np.uint8).tobytes())


def test_fashion_mnist(server: SimpleNamespace) -> None:
    labels = {"train": np.arange(60) % 10, "t10k": np.arange(20) % 10}
    contents = {}
    for part, values in labels.items():
        contents[f"{part}-labels-idx1-ubyte.gz"] = idx(values)
        contents[f"{part}-images-idx3-ubyte.gz"] = idx(
            np.repeat(values, 784).reshape(-1, 28, 28) * 25
        )
    server.serve("fashion_mnist", contents)
    for train, count in ((True, 60), (False, 20)):
        images, kinds = data.fashion_mnist(train)
        assert (
            images.shape == (count, 1, 28, 28)
            and images.dtype == torch.uint8
            and kinds.dtype == torch.int64
        )
        assert torch.equal(images[:, 0, 3, 5], (kinds * 25).to(torch.uint8))
        assert kinds.bincount().tolist() == [count // 10] * 10
    assert torch.equal(data.fashion_mnist(size=10)[0], data.fashion_mnist()[0][:10])
    assert sorted(server.requests) == sorted(contents)


@pytest.mark.parametrize("load", [data.cifar10, data.cifar10_jpeg, data.fashion_mnist])
@pytest.mark.parametrize("size", [0, -1, True, 2.5, "10"])
def test_bad_size(load: Callable[..., Any], size: Any, cache: Path) -> None:
    with pytest.raises(ValueError, match=rf"size={size!r}.*accepted"):
        load(size=size)
    assert not cache.exists()


def test_size_beyond_the_set(cifar: str) -> None:
    with pytest.raises(ValueError, match="size=401: accepted are whole numbers from 1 to 400"):
        data.cifar10(size=401)


def test_random_numbers_of_the_caller_are_left_alone(cifar: str) -> None:
    state = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    data.cifar10()
    assert (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    ) == state


def test_digits() -> None:
    images, labels = data.digits()
    assert (
        images.shape == (1797, 1, 8, 8)
        and images.dtype == torch.uint8
        and labels.dtype == torch.int64
    )
    assert (images.min(), images.max()) == (0, 255) and labels[:10].tolist() == list(range(10))


# --------------------------------------------------------------------------------------------------------- real files


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LABKIT_DATA", str(REAL))
    return Path(str(REAL))


@needs_real_files
def test_real_airfoil_is_scaled_as_in_d2l(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from d2l import torch as d2l

    monkeypatch.setattr(d2l, "download", lambda name: str(real / "airfoil_self_noise.dat"))
    monkeypatch.setattr(d2l, "load_array", lambda arrays, batch_size, is_train: arrays)
    (features, target), width = d2l.get_data_ch11()
    ours, noise = data.airfoil()
    assert (
        ours.shape == (1503, width)
        and noise.shape == (1503,)
        and ours.dtype == noise.dtype == torch.float32
    )
    assert torch.equal(ours[:1500], features) and torch.equal(noise[:1500], target)


@needs_real_files
def test_real_time_machine_is_read_as_in_d2l(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from d2l import torch as d2l

    text = data.time_machine()
    assert text.startswith("The Time Machine, by H. G. Wells [1898]")
    monkeypatch.setattr(d2l, "download", lambda *args: str(real / "timemachine.txt"))
    assert text == d2l.TimeMachine._download(SimpleNamespace(root=""))


@needs_real_files
def test_real_cifar10(real: Path, cache: Path) -> None:
    files, labels = data.cifar10_jpeg(size=200)
    images, same = data.cifar10(size=200)
    assert torch.equal(labels, same) and labels.bincount().tolist() == [20] * 10
    for file, image in zip(files, images, strict=True):
        assert np.array_equal(
            np.asarray(Image.open(io.BytesIO(file))), image.permute(1, 2, 0).numpy()
        )
    ours = {
        (label, file)
        for label, file in zip(labels.tolist(), files.tolist(), strict=True)
        if label == 0
    }
    with tarfile.open(
        real / "cifar10-jpeg.tar.xz"
    ) as tar:  # airplanes stand first: read no further
        members = [tar.next() for _ in range(5002)]
        planes = {
            tar.extractfile(member).read() for member in members if member and member.isfile()
        }
    assert len(ours) == 20 and {file for _, file in ours} <= planes
    (pack,) = left_over(cache)
    assert pack.name.startswith("cifar10-train-jpeg.")
