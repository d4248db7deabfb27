"""Real data sets for the labs, as tensors; `course.data_sources` says where their files come from.

Images come in one fixed order, shuffled and balanced over the classes: `size=n` is always the same
n samples. Image sets that cannot be had are replaced by scikit-learn's digits, with a notice.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import sys
import tarfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from course.data_sources import cache_dir, copies, damage, files
from course.written import write_whole
from labkit.progress import progress

__all__ = [
    "CIFAR10_CLASSES",
    "airfoil",
    "airfoil_or_digits",
    "by_value",
    "cifar10",
    "cifar10_jpeg",
    "copies",
    "digits",
    "fashion_mnist",
    "files",
    "packs",
    "time_machine",
]

# Images uint8 (N, C, H, W) or JPEG files bytes (N,), and their labels int64 (N,).
Samples = tuple[np.ndarray, np.ndarray]

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
    """CIFAR-10: images uint8 (N, 3, 32, 32), labels int64 (N,).

    N = `size`, else 50,000 (train) or 10,000 (test).
    """
    images, labels = _cifar10(train, size, jpeg=False)
    return torch.from_numpy(images), torch.from_numpy(labels)


def cifar10_jpeg(train: bool = True, size: int | None = None) -> tuple[np.ndarray, Tensor]:
    """The same samples, in the same order, as JPEG files of quality 75; labels int64 (N,).

    The files are an array (N,) whose items are `bytes`: one block of memory, which the workers of
    a DataLoader share.
    """
    encoded, labels = _cifar10(train, size, jpeg=True)
    return encoded, torch.from_numpy(labels)


def fashion_mnist(train: bool = True, size: int | None = None) -> tuple[Tensor, Tensor]:
    """Fashion-MNIST: images uint8 (N, 1, 28, 28), labels int64 (N,).

    N = `size`, else 60,000 (train) or 10,000 (test).
    """
    _check_train(train)
    _check_size(size)
    try:
        paths = files("fashion_mnist")
    except ConnectionError as error:
        images, labels = _stand_in(error, train, size, channels=1, side=28)
    else:
        pixels, classes = paths[:2] if train else paths[2:]
        images, labels = _first(_ordered(_idx(pixels, 1, 28, 28), _idx(classes)), size)
    return torch.from_numpy(images), torch.from_numpy(labels)


def _idx(path: Path, *shape: int) -> np.ndarray:
    """The values of a compressed IDX file, whose header has 4 bytes, and 4 for each dimension."""
    content = gzip.decompress(path.read_bytes())
    header = 4 + 4 * content[3]
    return np.frombuffer(content, np.uint8, offset=header).reshape(-1, *shape)


def airfoil() -> tuple[Tensor, Tensor]:
    """NASA airfoil self-noise: features float32 (1503, 5), target float32 (1503,).

    Scaled as in `d2l.get_data_ch11`: every column, the target too, minus its mean and divided by
    its population standard deviation over all rows.
    """
    table = np.genfromtxt(files("airfoil")[0], dtype=np.float32, delimiter="\t")
    scaled = torch.from_numpy((table - table.mean(axis=0)) / table.std(axis=0))
    return scaled[:, :-1].contiguous(), scaled[:, -1].contiguous()


def airfoil_or_digits() -> tuple[Tensor, Tensor]:
    """`airfoil`, or a stand-in where there is neither copy nor internet, which is said: from the
    brightness of five rows of pixels of `digits` that of a sixth.
    """
    try:
        return airfoil()
    except ConnectionError as error:
        print(f"{error}\nSTAND-IN: the brightness of six rows of 1,797 digits.")
    table = digits()[0].float().mean(3)[:, 0, 1:7]
    scaled = (table - table.mean(0)) / table.std(0)
    return scaled[:, :-1].contiguous(), scaled[:, -1].contiguous()


def time_machine() -> str:
    """The Time Machine by H. G. Wells: the raw text, as `d2l.TimeMachine` reads it."""
    return files("time_machine")[0].read_text(encoding="utf-8")


def digits() -> tuple[Tensor, Tensor]:
    """scikit-learn's digits: images uint8 (1797, 1, 8, 8), labels int64 (1797,).

    Scaled from 0..16 to 0..255. Raises ImportError without scikit-learn.
    """
    if find_spec("sklearn") is None:
        raise ImportError(
            "digits come with scikit-learn, which is not installed: pip install scikit-learn"
        )
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    scaled = np.rint(images.reshape(-1, 1, 8, 8) * (255 / 16)).astype(np.uint8)
    return torch.from_numpy(scaled), torch.from_numpy(labels.astype(np.int64))


def by_value(dataset: Dataset) -> Dataset:
    """The same data set, which reaches the workers of a `DataLoader` together with its class.

    A worker that is not forked gets the data set as a pickle. That names its class, and a class
    of a notebook is in no module that the worker could import.
    """
    return _ByValue(dataset)


class _ByValue(Dataset):
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[index]

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        import cloudpickle

        return _from_bytes, (cloudpickle.dumps(self._dataset),)


def _from_bytes(content: bytes) -> Dataset:
    return by_value(pickle.loads(content))


def packs(name: str) -> dict[Path, str | None]:
    """What was unpacked or converted once and kept in the cache, and what is wrong with it.

    The names of these files carry their checksum.
    """
    found = {}
    for path in sorted(cache_dir().glob(f"{name}*.npz")):
        checksum = path.suffixes[-2].removeprefix(".")
        found[path] = damage(path, f"sha1:{checksum}")
    return found


def _check_train(train: bool) -> None:
    """TypeError for what is no bool: "test" and a number would mean the training set."""
    if not isinstance(train, bool | np.bool_):
        raise TypeError(
            f"train={train!r}: accepted are True for the training set and False for the test set; "
            "a number of samples is given as size="
        )


def _check_size(size: int | None, have: int = sys.maxsize) -> None:
    if size is None:
        return
    whole = isinstance(size, int) and not isinstance(size, bool)
    if not whole or not 1 <= size <= have:
        raise ValueError(
            f"size={size!r}: accepted are whole numbers from 1 to {have}, or None for all samples"
        )


def _first(samples: Samples, size: int | None) -> Samples:
    images, labels = samples
    _check_size(size, len(labels))
    if size is None:
        return samples
    # Copies, so that the memory of the others is freed.
    return images[:size].copy(), labels[:size].copy()


def _ordered(samples: np.ndarray, labels: np.ndarray) -> Samples:
    """The samples in the fixed order: shuffled, then dealt out one of each class, and so on."""
    # RandomState is the generator whose stream NumPy froze.
    order = np.random.RandomState(0).permutation(len(labels))
    one_hot = labels[order, None] == np.unique(labels)
    earlier_of_its_class = one_hot.cumsum(axis=0)[one_hot]
    order = order[np.argsort(earlier_of_its_class, kind="stable")]
    return samples[order], labels[order].astype(np.int64)


# What was said of stand-ins: once in full for each shape, then once for each size.
_told: set[str] = set()


def _stand_in(why: Exception, train: bool, size: int | None, channels: int, side: int) -> Samples:
    """Digits in the shape of another image set: 1,500 for training, 297 for test, or fewer."""
    if find_spec("sklearn") is None:
        raise why
    small, labels = digits()
    large = torch.nn.functional.interpolate(small.float(), size=(side, side), mode="bilinear")
    pixels = large.round().to(torch.uint8).expand(-1, channels, -1, -1).contiguous()
    images, targets = _ordered(pixels.numpy(), labels.numpy())
    if train:
        part = slice(0, min(size or 1500, 1500))
    else:
        part = slice(1500, 1500 + (size or 297))
    shape = f"{channels}x{side}x{side}"
    said = f"labkit: STAND-IN again: {len(targets[part])} of scikit-learn's digits, as {shape}"
    if shape not in _told:
        _told.add(shape)
        said = (
            f"labkit: {why}\nSTAND-IN: {len(targets[part])} of scikit-learn's digits are used "
            f"instead, scans of 8x8 enlarged to {shape}. Every lab runs, but its accuracies are "
            "not those of the real data set."
        )
    elif said in _told:
        said = ""
    if said:
        _told.add(said)
        print(said, file=sys.stderr)
    return images[part], targets[part]


def _cifar10(train: bool, size: int | None, jpeg: bool) -> Samples:
    _check_train(train)
    _check_size(size)
    split = "train" if train else "test"
    try:
        paths = files("cifar10")
    except ConnectionError as error:
        samples = _stand_in(error, train, size, channels=3, side=32)
        return _converted(samples) if jpeg else samples
    form, read = "original", _read_original
    if paths[0].suffix == ".xz":
        form, read = "jpeg", _read_jpeg
    stem = f"cifar10-{split}-{form}"
    samples = _packed(stem, lambda: read(paths, split))
    if jpeg == (form == "jpeg"):
        return _first(samples, size)
    # All: the result is kept. A part is converted anew, in 0.05 ms an image.
    if size is None or size == len(samples[1]):
        result = "encoded" if jpeg else "decoded"
        return _packed(f"{stem}-{result}", lambda: _converted(samples))
    return _converted(_first(samples, size))


def _converted(samples: Samples) -> Samples:
    """Images to JPEG files, or JPEG files to images."""
    items, labels = samples
    convert = _decode if items.ndim == 1 else _encode
    bar = progress(iterable=items, desc=f"{convert.__name__[1:]} JPEG", delay=2)
    # NumPy's type for bytes drops zeros at the end, which no JPEG file has: it ends with FF D9.
    return np.array(list(map(convert, bar))), labels


def _encode(image: np.ndarray) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, "JPEG", quality=75)
    return file.getvalue()


def _decode(file: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB")).transpose(2, 0, 1)


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of each file of an archive, read in one pass."""
    with tarfile.open(path, "r|*") as archive:
        bar = progress(iterable=archive, desc=f"unpacking {path.name}", unit=" files", delay=2)
        for member in bar:
            content = archive.extractfile(member)
            if content is not None:
                yield member.name, content.read()


def _read_jpeg(paths: list[Path], split: str) -> Samples:
    """The archive's files `<split>/<class>/<number>.jpg`."""
    contents, labels = [], []
    for name, content in _members(paths[0]):
        if name.startswith(split):
            contents.append(content)
            labels.append(CIFAR10_CLASSES.index(Path(name).parent.name))
    return _ordered(np.array(contents), np.array(labels))


def _read_original(paths: list[Path], split: str) -> Samples:
    """The pickles of the python version, in its archive or its folder, of verified files."""
    if len(paths) == 1:
        pairs = _members(paths[0])
    else:
        pairs = ((path.name, path.read_bytes()) for path in paths)
    prefix = "data_batch_" if split == "train" else "test_batch"
    contents = {}
    for name, content in pairs:
        if Path(name).name.startswith(prefix):
            contents[Path(name).name] = content
    images, labels = [], []
    for name in sorted(contents):
        batch = pickle.loads(contents[name], encoding="bytes")
        images.append(batch[b"data"])
        labels.append(batch[b"labels"])
    return _ordered(np.concatenate(images).reshape(-1, 3, 32, 32), np.concatenate(labels))


def _packed(stem: str, make: Callable[[], Samples]) -> Samples:
    """The samples kept in the cache under this name; made and kept if missing or damaged.

    Where there is no room for them, or no right to write, they are made again each time.
    """
    for path, problem in packs(f"{stem}.").items():
        if problem is None:
            with np.load(path) as pack:
                return pack["samples"], pack["labels"]
        print(f"labkit: {problem}. It is made again.", file=sys.stderr)
        path.unlink(missing_ok=True)
    samples, labels = make()
    content = io.BytesIO()
    np.savez(content, samples=samples, labels=labels)
    checksum = hashlib.sha1(content.getbuffer()).hexdigest()
    path = cache_dir() / f"{stem}.{checksum}.npz"
    try:
        write_whole(path, content.getvalue())
    except OSError as error:
        why = error.strerror or error
        print(
            f"labkit: {path} cannot be written: {why}. It is made again next time.", file=sys.stderr
        )
    return samples, labels
