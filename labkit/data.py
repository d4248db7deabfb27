"""Real data sets for the labs, as tensors, from the first source that has them undamaged: the folder named by the
environment variable LABKIT_DATA, the project's cache, a download. Image sets end with scikit-learn's digits as a
stand-in, and say so. `sources.json` lists every file with its checksum: `d2l.download` does not verify, labkit does.
Images come in one fixed order, shuffled and balanced over the classes: `size=n` is always the same n samples.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import os
import pickle
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

Samples = tuple[
    np.ndarray, np.ndarray
]  # images uint8 (N, C, H, W) or JPEG files bytes (N,); labels int64 (N,)
SETS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("sources.json").read_text(encoding="utf-8")
)
CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)


def cifar10(train: bool = True, size: int | None = None) -> tuple[Tensor, Tensor]:
    """CIFAR-10: images uint8 (N, 3, 32, 32), labels int64 (N,); N = `size`, else 50,000 (train) or 10,000 (test)."""
    images, labels = _cifar10(train, size, jpeg=False)
    return torch.from_numpy(images), torch.from_numpy(labels)


def cifar10_jpeg(train: bool = True, size: int | None = None) -> tuple[np.ndarray, Tensor]:
    """The same samples, in the same order, as JPEG files (quality 75): an array (N,) whose items are `bytes`, one block
    of memory that DataLoader workers share; and labels int64 (N,)."""
    files, labels = _cifar10(train, size, jpeg=True)
    return files, torch.from_numpy(labels)


def fashion_mnist(train: bool = True, size: int | None = None) -> tuple[Tensor, Tensor]:
    """Fashion-MNIST: images uint8 (N, 1, 28, 28), labels int64 (N,); N = `size`, else 60,000 (train), 10,000 (test)."""
    _check_size(size)
    try:
        paths = files("fashion_mnist")[:2] if train else files("fashion_mnist")[2:]
        pixels, classes = (gzip.decompress(path.read_bytes()) for path in paths)
        samples = np.frombuffer(pixels, np.uint8, offset=16).reshape(
            -1, 1, 28, 28
        )  # IDX: a header, then the values
        images, labels = _first(_ordered(samples, np.frombuffer(classes, np.uint8, offset=8)), size)
    except ConnectionError as error:
        images, labels = _stand_in(error, train, size, channels=1, side=28)
    return torch.from_numpy(images), torch.from_numpy(labels)


def airfoil() -> tuple[Tensor, Tensor]:
    """NASA airfoil self-noise: features float32 (1503, 5), target float32 (1503,), scaled as in `d2l.get_data_ch11`:
    every column, the target too, minus its mean and divided by its population standard deviation over all rows."""
    table = np.genfromtxt(files("airfoil")[0], dtype=np.float32, delimiter="\t")
    scaled = torch.from_numpy((table - table.mean(axis=0)) / table.std(axis=0))
    return scaled[:, :-1].contiguous(), scaled[:, -1].contiguous()


def time_machine() -> str:
    """The Time Machine by H. G. Wells: the raw text, as `d2l.TimeMachine` reads it."""
    return files("time_machine")[0].read_text(encoding="utf-8")


def digits() -> tuple[Tensor, Tensor]:
    """scikit-learn's digits: images uint8 (1797, 1, 8, 8), scaled from 0..16 to 0..255, and labels int64 (1797,)."""
    if find_spec("sklearn") is None:
        raise ImportError(
            "digits come with scikit-learn, which is not installed: pip install scikit-learn"
        )
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    scaled = np.rint(images.reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    return torch.from_numpy(scaled), torch.from_numpy(labels.astype(np.int64))


def cache_dir() -> Path:
    """`data/cache` of a checkout; for an installed package `.cache/labkit` in the user's home."""
    root = Path(__file__).resolve().parent.parent
    checkout = (root / "pyproject.toml").is_file() and (root / "data").is_dir()
    return root / "data" / "cache" if checkout else Path.home() / ".cache" / "labkit"


def copies(name: str) -> Iterator[tuple[str, bool, dict[Path, str | None]]]:
    """Each copy of a set, best first: (source, complete and intact?, its files with what is wrong with them)."""
    roots, folder = {"cache": cache_dir()}, os.environ.get("LABKIT_DATA")
    if folder:
        if not Path(folder).is_dir():
            raise NotADirectoryError(
                f"LABKIT_DATA={folder!r} is not a folder; name an existing one, or unset it"
            )
        roots = {"LABKIT_DATA": Path(folder), **roots}
    for source, root in roots.items():
        for form in SETS[name]["forms"]:
            places = {root / entry["name"]: entry["checksum"] for entry in form}
            found = {
                path: _damage(path, checksum) for path, checksum in places.items() if path.is_file()
            }
            yield source, len(found) == len(places) and not any(found.values()), found


def packs(name: str) -> dict[Path, str | None]:
    """What was unpacked or converted once and kept in the cache, by the checksums that the file names carry."""
    paths = sorted(cache_dir().glob(f"{name}*.npz"))
    return {path: _damage(path, f"sha1:{path.suffixes[-2][1:]}") for path in paths}


def files(name: str) -> list[Path]:
    """The first complete intact copy, else a download; damaged files that it passes over are named."""
    for source, complete, found in copies(name):
        if complete:
            return list(found)
        for problem in filter(None, found.values()):
            left = " and left as it is" if source == "LABKIT_DATA" else ""
            print(f"labkit: {problem}. It is not used{left}.", file=sys.stderr)
    return [
        _cached(name, entry) for entry in SETS[name]["forms"][0]
    ]  # the first form is the one that is downloaded


def _damage(path: Path, checksum: str) -> str | None:
    algorithm, expected = checksum.split(":")
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, algorithm).hexdigest()
    return (
        None
        if found == expected
        else f"{path} is damaged: {algorithm} {expected} expected, {found} found"
    )


def _cached(name: str, entry: dict[str, Any]) -> Path:
    """The verified file in the cache, downloaded if it is missing or damaged."""
    path = cache_dir() / entry["name"]
    damage = _damage(path, entry["checksum"]) if path.is_file() else None
    if damage or not path.is_file():
        try:
            _write(path, _download(name, entry))
        except OSError as error:
            raise (
                OSError(f"{damage}, and cannot be fetched again. {error}") if damage else error
            ) from None
    return path


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    """The file appears whole or, after an exception in `chunks` or an interrupt, not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".part-") as folder:
        part = Path(folder) / path.name
        with part.open("wb") as handle:
            handle.writelines(chunks)
        os.replace(part, path)


def _download(name: str, entry: dict[str, Any]) -> Iterator[bytes]:
    """The file in chunks; OSError at the end if they are not what the checksum says, ConnectionError if offline."""
    url, (algorithm, expected) = entry["url"], entry["checksum"].split(":")
    digest = hashlib.new(algorithm)
    try:
        bar = tqdm(desc=entry["name"], total=entry["bytes"], unit="B", unit_scale=True, leave=False)
        with bar, urllib.request.urlopen(url, timeout=10) as response:
            while chunk := response.read(1 << 18):
                digest.update(chunk)
                bar.update(len(chunk))
                yield chunk
    except (OSError, http.client.HTTPException) as error:
        forms = [
            dict.fromkeys(Path(entry["name"]).parts[0] for entry in form)
            for form in SETS[name]["forms"]
        ]
        advice = f"put {' or '.join(map(', '.join, forms))} into a folder and set the variable LABKIT_DATA to it"
        raise ConnectionError(
            f"{name}: {url} cannot be reached ({error}). Without internet, {advice}."
        ) from error
    if digest.hexdigest() != expected:
        found = f"{algorithm} {expected} expected, {digest.hexdigest()} found"
        raise OSError(
            f"{entry['name']} came damaged from {url}: {found}. It was not kept; try again"
        )


def _check_size(size: int | None, have: int = sys.maxsize) -> None:
    if size is not None and (
        isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= have
    ):
        raise ValueError(
            f"size={size!r}: accepted are whole numbers from 1 to {have}, or None for all samples"
        )


def _first(samples: Samples, size: int | None) -> Samples:
    _check_size(size, len(samples[1]))
    return (
        samples if size is None else (samples[0][:size].copy(), samples[1][:size].copy())
    )  # a copy frees the rest


def _ordered(samples: np.ndarray, labels: np.ndarray) -> Samples:
    """The samples in the fixed order: shuffled, then dealt out one of each class, another one of each, and so on."""
    order = np.random.RandomState(0).permutation(
        len(labels)
    )  # RandomState: the generator whose stream numpy froze
    one_hot = labels[order, None] == np.unique(labels)
    order = order[
        np.argsort(one_hot.cumsum(axis=0)[one_hot], kind="stable")
    ]  # by how many of its class came before
    return samples[order], labels[order].astype(np.int64)


def _stand_in(why: Exception, train: bool, size: int | None, channels: int, side: int) -> Samples:
    """Digits in the shape of another image set: 1,500 for training, 297 for test, or the first `size` of them."""
    if find_spec("sklearn") is None:
        raise why
    small, labels = digits()
    large = (
        torch.nn.functional.interpolate(small.float(), size=(side, side), mode="bilinear")
        .round()
        .to(torch.uint8)
    )
    images, targets = _ordered(large.expand(-1, channels, -1, -1).numpy(), labels.numpy())
    part = slice(0, min(size or 1500, 1500)) if train else slice(1500, 1500 + (size or 297))
    print(
        f"labkit: {why}\nSTAND-IN: {len(targets[part])} of scikit-learn's digits are used instead, scans of 8x8 "
        f"enlarged to {channels}x{side}x{side}. Every lab runs, but its accuracies are not those of the real data set.",
        file=sys.stderr,
    )
    return images[part], targets[part]


def _cifar10(train: bool, size: int | None, jpeg: bool) -> Samples:
    _check_size(size)
    split, stem = ("train" if train else "test"), ""
    try:
        paths = files("cifar10")
        form, read = (
            ("jpeg", _read_jpeg) if paths[0].suffix == ".xz" else ("original", _read_original)
        )
        stem = f"cifar10-{split}-{form}"
        samples = _packed(stem, lambda: read(paths, split))
    except ConnectionError as error:
        samples, size = _stand_in(error, train, size, channels=3, side=32), None
    if jpeg == (samples[0].ndim == 1):
        return _first(samples, size)
    if stem and size in (
        None,
        len(samples[1]),
    ):  # all: keep the result; a part is converted anew, 0.05 ms an image
        return _packed(f"{stem}-{'encoded' if jpeg else 'decoded'}", lambda: _converted(samples))
    return _converted(_first(samples, size))


def _converted(samples: Samples) -> Samples:
    """Images to JPEG files, or JPEG files to images."""
    from PIL import Image

    def encode(image: np.ndarray) -> bytes:
        Image.fromarray(image.transpose(1, 2, 0)).save(buffer := io.BytesIO(), "JPEG", quality=75)
        return buffer.getvalue()

    def decode(file: bytes) -> np.ndarray:
        return np.asarray(Image.open(io.BytesIO(file)).convert("RGB")).transpose(2, 0, 1)

    convert = decode if samples[0].ndim == 1 else encode
    bar = tqdm(samples[0], desc=f"{convert.__name__} JPEG", delay=2, leave=False)
    # NumPy's type for bytes drops zeros at the end, which no JPEG file has: it ends with FF D9.
    return np.array([convert(item) for item in bar]), samples[1]


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of an archive, read in one pass."""
    with tarfile.open(path, "r|*") as archive:
        for member in tqdm(
            archive, desc=f"unpacking {path.name}", unit=" files", delay=2, leave=False
        ):
            if (content := archive.extractfile(member)) is not None:
                yield member.name, content.read()


def _read_jpeg(paths: list[Path], split: str) -> Samples:
    """The archive's files `<split>/<class>/<number>.jpg`."""
    chosen = [
        (Path(name).parent.name, content)
        for name, content in _members(paths[0])
        if name.startswith(split)
    ]
    labels = [CIFAR10_CLASSES.index(category) for category, _ in chosen]
    return _ordered(np.array([content for _, content in chosen]), np.array(labels))


def _read_original(paths: list[Path], split: str) -> Samples:
    """The pickles of the python version, in its archive or its folder; their checksums have been verified."""
    pairs = (
        _members(paths[0])
        if len(paths) == 1
        else ((path.name, path.read_bytes()) for path in paths)
    )
    prefix = "data_batch_" if split == "train" else "test_batch"
    chosen = sorted(
        (Path(name).name, content) for name, content in pairs if Path(name).name.startswith(prefix)
    )
    batches = [pickle.loads(content, encoding="bytes") for _, content in chosen]
    images = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return _ordered(images, np.concatenate([batch[b"labels"] for batch in batches]))


def _packed(stem: str, make: Callable[[], Samples]) -> Samples:
    """The samples kept in the cache under this name; made and kept if they are missing or damaged."""
    for path, damage in packs(f"{stem}.").items():
        if not damage:
            with np.load(path) as pack:
                return pack["samples"], pack["labels"]
        print(f"labkit: {damage}. It is made again.", file=sys.stderr)
        path.unlink(missing_ok=True)
    samples, labels = make()
    np.savez(buffer := io.BytesIO(), samples=samples, labels=labels)
    path = cache_dir() / f"{stem}.{hashlib.sha1(buffer.getbuffer()).hexdigest()}.npz"
    _write(path, [buffer.getvalue()])
    return samples, labels
