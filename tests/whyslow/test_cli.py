"""The `whyslow` command, run in this process."""

import sys

import pytest

from whyslow.cli import main

SCRIPT = """
import time
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [torch.randn(8, 4) for _ in range(4)]
number = 3


def step(batch):
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def alone():
    time.sleep(0.01)


if __name__ == "__main__":
    raise SystemExit("the training itself")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "slow_script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    yield path
    sys.modules.pop("slow_script", None)


@pytest.mark.parametrize("more", [["step", "--batches", "batches"], ["alone"]])
def test_a_script_is_diagnosed_without_its_main_part(script, capsys, more):
    name, *options = more
    assert main([f"{script}:{name}", "--seconds", "1", *options]) == 0
    assert capsys.readouterr().out.startswith("One step takes ")


@pytest.mark.parametrize("name", ["random.py", "train.v2.py"])
def test_a_script_may_have_any_name(script, tmp_path, monkeypatch, capsys, name):
    for module in (name.removesuffix(".py"), "random"):
        monkeypatch.setitem(sys.modules, module, sys.modules.get(module))
    other = script.rename(tmp_path / name)
    assert main([f"{other}:alone", "--seconds", "1"]) == 0
    assert capsys.readouterr().out.startswith("One step takes ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.py"], "there is no file 'nowhere.py'"),
        (["pyproject.toml"], "'pyproject.toml' is no Python script"),
        (["nowhere.py:step"], "there is no file 'nowhere.py'"),
        (["pyproject.toml:step"], "'pyproject.toml' is no Python script"),
        (["{}:stop"], "has no 'stop' at its top level"),
        (["{}:step", "--batches", "loader"], "has no 'loader' at its top level"),
        (["{}:step"], "is called as step()"),
        (["{}:number"], "step=3 cannot be called"),
        (["{}:alone", "--seconds", "0"], "seconds=0.0"),
        (["--seconds", "0", "{}"], "seconds=0.0"),
        (["--steps", "0", "{}"], "steps=0"),
    ],
)
def test_what_cannot_be_diagnosed_is_named(script, capsys, arguments, words):
    with pytest.raises(SystemExit) as error:
        main([*(each.format(script) for each in arguments)])
    assert error.value.code == 2
    assert words in capsys.readouterr().err
