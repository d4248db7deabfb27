"""Data sets as tensors: shapes, order, forms, what is kept unpacked, the stand-in, real files."""

import gzip
import io
import os
import pickle
import random
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from data_files import Server, all_files, flipped, publish, put, sha1
from PIL import Image

from course import data

REAL = os.environ.get("LABKIT_DATA")
needs_real_files = pytest.mark.skipif(not REAL, reason="LABKIT_DATA is not set")

pytestmark = pytest.mark.usefixtures("cache")


def assert_images(images: torch.Tensor, *shape: int) -> None:
    assert images.shape == shape
    assert images.dtype == torch.uint8 and images.is_contiguous()


# The stand-in


def test_stand_in_for_images(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_told", set())
    images, labels = data.cifar10(size=60)
    assert_images(images, 60, 3, 32, 32)
    assert labels.bincount().tolist() == [6] * 10
    message = capsys.readouterr().err
    for part in ("STAND-IN", "digits", "LABKIT_DATA", "cifar10-jpeg.tar.xz"):
        assert part in message
    assert len(data.cifar10(train=True)[1]) == 1500
    assert len(data.cifar10(train=False)[1]) == 297
    # Cut to what there is, and said.
    assert len(data.cifar10(size=50_000)[1]) == 1500
    again = capsys.readouterr().err
    assert "1500 of scikit-learn's digits" in again
    # The reasons are told once, and so is each size.
    assert again.count("\n") == again.count("STAND-IN again") == 2

    pictures, kinds = data.fashion_mnist(False, size=30)
    assert_images(pictures, 30, 1, 28, 28)
    assert kinds.bincount().tolist() == [3] * 10
    files, same = data.cifar10_jpeg(size=60)
    assert files[0][:2] == b"\xff\xd8" and torch.equal(same, labels)


def test_stand_in_of_train_and_test_is_apart() -> None:
    train = {image.numpy().tobytes() for image in data.fashion_mnist(train=True)[0]}
    test = {image.numpy().tobytes() for image in data.fashion_mnist(train=False)[0]}
    assert (len(train), len(test)) == (1500, 297) and train.isdisjoint(test)


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="scikit-learn"):
        data.digits()
    with pytest.raises(ConnectionError, match=r"fashion_mnist: .*LABKIT_DATA"):
        data.fashion_mnist()


# Image sets


def batch(labels: list[int]) -> bytes:
    """A pickle in the form of CIFAR-10's: images of one grey each, which tells the label."""
    pixels = np.repeat(np.array(labels, dtype=np.uint8)[:, None] * 25, 3072, axis=1)
    return pickle.dumps({b"data": pixels, b"labels": labels})


LABELS = [label for label in range(10) for _ in range(8)]
BATCHES = {f"cifar-10-batches-py/data_batch_{i}": batch(LABELS) for i in range(1, 6)}
BATCHES["cifar-10-batches-py/test_batch"] = batch(LABELS[::-1])


def archive(contents: dict[str, bytes], mode: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return file.getvalue()


def jpeg(grey: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (32, 32), (grey, grey, grey)).save(file, "JPEG", quality=75)
    return file.getvalue()


def jpegs(split: str, count: int) -> dict[str, bytes]:
    """Files of each class, as they lie in the archive."""
    files = {}
    for label, category in enumerate(data.CIFAR10_CLASSES):
        for i in range(count):
            files[f"{split}/{category}/{i:04}.jpg"] = jpeg(label * 25)
    return files


ORIGINAL = {"cifar-10-python.tar.gz": archive(BATCHES, "w:gz")}
JPEG = {"cifar10-jpeg.tar.xz": archive(jpegs("train", 40) | jpegs("test", 8), "w:xz")}


@pytest.fixture(params=["archive", "folder", "jpeg"])
def cifar(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    contents = {"archive": ORIGINAL, "folder": BATCHES, "jpeg": JPEG}[request.param]
    publish("cifar10", contents)
    monkeypatch.setenv("LABKIT_DATA", str(put(tmp_path / "own", contents)))
    return request.param


def assert_aligned(images: torch.Tensor, labels: torch.Tensor) -> None:
    # JPEG is lossy.
    assert (images.double().mean((1, 2, 3)) - labels * 25).abs().max() <= 2


def test_cifar10_from_each_form(cifar: str) -> None:
    for train, count in ((True, 400), (False, 80)):
        images, labels = data.cifar10(train)
        assert_images(images, count, 3, 32, 32)
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
    # Shuffled.
    assert kinds[:10].tolist() != kinds[10:20].tolist()
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
    # One as read, one converted.
    assert len(all_files(cache)) == 2


def test_damaged_pack_is_made_again(
    cifar: str, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = data.cifar10()[0]
    packs = all_files(cache)
    intact = {path: path.read_bytes() for path in packs}
    for path, content in intact.items():
        path.write_bytes(flipped(content))
    assert torch.equal(data.cifar10()[0], wanted)
    message = capsys.readouterr().err
    for path, content in intact.items():
        assert path.read_bytes() == content
        for part in (path.name, sha1(content), sha1(flipped(content))):
            assert part in message


def test_first_use_by_several_threads(cifar: str, cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: data.cifar10(size=40)[0], range(4)))
    assert all(torch.equal(result, results[0]) for result in results)
    assert len(all_files(cache)) == 1


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


def test_fashion_mnist(server: Server) -> None:
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
        assert_images(images, count, 1, 28, 28)
        assert kinds.dtype == torch.int64
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


@pytest.mark.parametrize("load", [data.cifar10, data.cifar10_jpeg, data.fashion_mnist])
@pytest.mark.parametrize("train", ["test", "train", 500, 0, None])
def test_what_is_no_part_is_refused_by_name(
    load: Callable[..., Any], train: Any, cache: Path
) -> None:
    with pytest.raises(TypeError, match=rf"train={train!r}: accepted are True .* size="):
        load(train)
    assert not cache.exists()


def test_size_beyond_the_set(cifar: str) -> None:
    with pytest.raises(ValueError, match="size=401: accepted are whole numbers from 1 to 400"):
        data.cifar10(size=401)


def test_random_numbers_of_the_caller_are_left_alone(cifar: str) -> None:
    def generators() -> tuple[Any, ...]:
        numbers = np.random.get_state()[1]
        return random.getstate(), numbers.tolist(), torch.get_rng_state().tolist()

    before = generators()
    data.cifar10()
    assert generators() == before


def test_digits() -> None:
    images, labels = data.digits()
    assert_images(images, 1797, 1, 8, 8)
    assert labels.dtype == torch.int64
    assert (images.min(), images.max()) == (0, 255) and labels[:10].tolist() == list(range(10))


# Real files


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
    assert ours.shape == (1503, width) and noise.shape == (1503,)
    assert ours.dtype == noise.dtype == torch.float32
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
        decoded = np.asarray(Image.open(io.BytesIO(file)))
        assert np.array_equal(decoded, image.permute(1, 2, 0).numpy())
    ours = set(files[labels.numpy() == 0].tolist())
    planes = set()
    with tarfile.open(real / "cifar10-jpeg.tar.xz") as tar:
        # Airplanes stand first: no need to read further.
        for _ in range(5002):
            member = tar.next()
            if member is not None and member.isfile():
                planes.add(tar.extractfile(member).read())
    assert len(ours) == 20 and ours <= planes
    (pack,) = all_files(cache)
    assert pack.name.startswith("cifar10-train-jpeg.")


# Workers


def test_a_data_set_by_value_reaches_a_process_that_cannot_import_its_class() -> None:
    class Squares(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> int:
            return index**2

    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(Squares())
    sent = data.by_value(Squares())
    for _ in range(2):
        # A worker may hand it on to one of its own.
        sent = pickle.loads(pickle.dumps(sent))
        assert [sent[index] for index in range(len(sent))] == [0, 1, 4, 9, 16]
    loader = torch.utils.data.DataLoader(sent, 5, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for batch in loader] == [[0, 1, 4, 9, 16]]
