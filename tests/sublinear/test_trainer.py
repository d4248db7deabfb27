"""A planned model in the hands of a library: transformers' Trainer, `save_pretrained`, pickling.

Skipped where transformers is not installed; the project does not depend on it.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

import sublinear

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed; it is no dependency of the project"
)

ROWS, LENGTH, WORDS = 4, 16, 50


@pytest.fixture
def model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=4, n_embd=32, n_head=2, vocab_size=WORDS, n_positions=LENGTH
    )
    return transformers.GPT2LMHeadModel(config).train()


def batch(seed: int) -> dict[str, torch.Tensor]:
    words = torch.randint(WORDS, (ROWS, LENGTH), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": words, "labels": words}


def trained(model: Any, folder: Path) -> dict[str, torch.Tensor]:
    """The weights after an epoch by the Trainer, from the same seed."""
    texts = [{name: values[0] for name, values in batch(seed).items()} for seed in range(16)]
    settings = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=ROWS,
        num_train_epochs=1,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
    )
    transformers.Trainer(model=model, args=settings, train_dataset=texts).train()
    return {name: value.clone() for name, value in model.state_dict().items()}


def test_the_trainer_trains_it_as_the_plain_one(model: Any, tmp_path: Path) -> None:
    plain = copy.deepcopy(model)
    before = model.config.to_dict()
    fitted = sublinear.fit(model, batch(0), max_overhead=100.0, repeats=1, loss=lambda o: o.loss)
    assert fitted.plan.depth and model.config.to_dict() == before
    found, wanted = trained(fitted.model, tmp_path), trained(plain, tmp_path)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


def test_it_is_saved_as_the_model_that_it_is(model: Any, tmp_path: Path) -> None:
    fitted = sublinear.fit(model, batch(0), max_overhead=100.0, repeats=1, loss=lambda o: o.loss)
    fitted.model.save_pretrained(tmp_path)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert type(again) is type(model)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name
    assert pickle.loads(pickle.dumps(model)).config.to_dict() == model.config.to_dict()
