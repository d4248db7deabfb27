"""Notebook 16's moving picture: its cards against NumPy's and PyTorch's own memory."""

from __future__ import annotations

import warnings
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from playwright.sync_api import Page

from .test_explorables import Model

pytestmark = pytest.mark.browser

CELLS, WRITTEN = 12, 99


@pytest.fixture(scope="module")
def model(blank: Page) -> Model:
    return Model(blank, "two_names")


class Names:
    """A card's array, made anew, and what PyTorch makes of it."""

    def __init__(self, card: dict[str, Any]) -> None:
        a = np.arange(CELLS, dtype=np.float32)
        frozen = a.copy()
        frozen.flags.writeable = False
        names = {"np": np, "torch": torch, "a": a, "frozen": frozen}
        self.source = eval(card["source"], names)
        # A second array with the same numbers would have another memory.
        call = card["code"].replace("(" + card["source"], "(source")
        self.tensor = self.error = None
        try:
            with warnings.catch_warnings():
                # torch's own, about read-only arrays and lists of arrays
                warnings.simplefilter("ignore")
                self.tensor = eval(call, names | {"source": self.source})
        except ValueError as error:
            self.error = error
        self.tape = frozen if card["source"] == "frozen" else a
        if isinstance(self.source, np.ndarray) and not np.shares_memory(self.source, a):
            self.tape = self.source

    @property
    def array(self) -> np.ndarray:
        return np.array(self.source)

    @property
    def fate(self) -> str:
        if self.error:
            return "error"
        at_first = self.tensor.tolist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shared = isinstance(self.source, np.ndarray) and np.shares_memory(
                self.tensor.numpy(force=True), self.source
            )
        assert self.tensor.tolist() == at_first
        return "shared" if shared else "copied"


def here(card: dict[str, Any]) -> bool:
    """Whether this machine can run a card's call."""
    return "cuda" not in card["code"] or torch.cuda.is_available()


def test_each_card_is_what_pytorch_does(model: Model) -> None:
    cards = model.value("CARDS")
    assert len(cards) == 10 and sum(map(here, cards)) >= 9
    for number, card in enumerate(cards):
        if here(card):
            assert model("answer", {"card": number}) == [Names(card).fate], card["code"]
    assert Counter(card["fate"] for card in cards) == {"shared": 4, "copied": 4, "error": 2}
    with pytest.raises(ValueError, match="negative"):
        torch.tensor(np.arange(3)[::-1])


def test_a_header_finds_the_numbers(model: Model) -> None:
    for card in model.value("CARDS"):
        names = (
            Names(card) if here(card) else Names(card | {"code": f"torch.tensor({card['source']})"})
        )
        cells = model("cellsOf", card)
        assert names.array.shape == tuple(card["shape"])
        assert cells == names.array.ravel().tolist()
        if isinstance(names.source, np.ndarray):
            strides = [bytes_ // names.source.itemsize for bytes_ in names.source.strides]
            assert strides == card["strides"]
        if card["fate"] == "shared":
            assert list(names.tensor.stride()) == card["strides"]
            assert names.tensor.storage_offset() == 0
            apart = names.tensor.data_ptr() - names.tape.ctypes.data
            assert apart == names.tape.itemsize * card["start"]


def written(card: dict[str, Any], cell: int, by: str) -> Names:
    """A write into a cell, if the name has it."""
    names = Names(card)
    places = np.array(names.array, dtype=np.int64)
    if by == "array" and names.tape.flags.writeable and cell in places:
        names.tape[cell] = WRITTEN
    if by == "tensor" and names.tensor is not None:
        names.tensor[torch.from_numpy(places == cell)] = WRITTEN
    return names


@pytest.mark.parametrize("by", ["array", "tensor"])
def test_a_write_lands_where_it_does_in_pytorch(model: Model, by: str) -> None:
    for (number, card), cell in product(enumerate(model.value("CARDS")), range(CELLS)):
        if not here(card):
            continue
        names = written(card, cell, by)
        found = model("memory", {"card": number, "cell": cell, "by": by})
        assert found["tape"] == names.tape.ravel().tolist()
        assert found["array"] == names.array.ravel().tolist()
        if names.tensor is None:
            assert found["tensor"] is None
        else:
            assert found["tensor"] == names.tensor.ravel().tolist()
        assert (found["own"] is None) == (card["fate"] != "copied")
        assert (WRITTEN in found["tape"]) == (found["landed"] == "tape")


def test_nothing_is_written_at_first(model: Model) -> None:
    opens = model.value("OPENS")
    for number in range(10):
        found = model("memory", {**opens, "card": number})
        assert found["landed"] is None and found["tape"] == list(range(CELLS))
        said = model("effect", {**opens, "card": number})
        refused = model.value("CARDS")[number]["fate"] == "error"
        assert (
            said
            == f"Now write into a cell: {'there is one name only.' if refused else 'who reads it?'}"
        )


def test_the_first_bet_on_a_card_counts_unless_the_answer_was_seen(model: Model) -> None:
    def state(card: int, *marks: bool | None) -> dict[str, Any]:
        return {**model.value("OPENS"), "card": card, "marks": list(marks)}

    assert model("mark", state(0), True, False) == {"marks": [True]}
    assert model("mark", state(0, False), True, False) == {}
    assert model("mark", state(0), True, True) == {"marks": [None]}
    assert model("mark", state(3, True), False, False) == {"marks": [True, None, None, False]}
    assert model("score", state(3, True, None, False, True)) == "2 of 4 right."
    assert model("score", state(9, *[True] * 10)).endswith(
        "10 of 10 right. ★ You know whose memory it is."
    )
    assert "★" not in model("score", state(9, *[True] * 9, False))


def test_the_game_goes_on_and_begins_anew(model: Model) -> None:
    opens = model.value("OPENS")
    now = {"card": 0, "cell": 4, "by": "tensor", "marks": [True]}
    assert model("advance", now) == {"card": 1, "cell": -1, "by": "array", "marks": [True]}
    assert model("advance", {**now, "card": 9}) == opens


def test_what_a_write_did_is_said(model: Model) -> None:
    codes = [card["code"] for card in model.value("CARDS")]

    def said(code: str, cell: int, by: str) -> str:
        return model("effect", {"card": codes.index(code), "cell": cell, "by": by})

    step = "torch.as_tensor(a[::2])"
    assert "and the tensor has changed" in said(step, 4, "array")
    assert "so would a data set" in said(step, 4, "tensor")
    assert said(step, 3, "tensor") == "Cell 3 is none of its numbers: nothing is written."
    assert said("torch.tensor(a)", 3, "array") == "The array reads 99; the tensor keeps its 3."
    assert said("torch.tensor(a)", 3, "tensor") == "The tensor reads 99; the array keeps its 3."
    assert "NumPy refuses" in said("torch.as_tensor(frozen)", 3, "array")
    assert "the array has changed" in said("torch.as_tensor(frozen)", 3, "tensor")
    assert said("torch.as_tensor(a[::-1])", 3, "tensor") == "There is no tensor to write through."
