"""JupyterLab's settings in this checkout's environment, and who gets them."""

import importlib.util
import json
import shutil
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from jupyterlab_server.settings_utils import get_settings

from course.notebook_files import ROOT

FOLDER = ROOT / "course" / "jupyter"
SCHEMAS = Path(sys.prefix) / "share" / "jupyter" / "lab" / "schemas"


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook, without the build backend: that is there while something is built."""
    interface = SimpleNamespace(BuildHookInterface=object)
    name = "hatchling"
    for part in ("", ".builders", ".hooks", ".plugin", ".interface"):
        name += part
        monkeypatch.setitem(sys.modules, name, interface)
    spec = importlib.util.spec_from_file_location("build_hook", FOLDER / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_an_editable_install_brings_the_settings(build: ModuleType) -> None:
    given: dict[str, dict[str, Any]] = {}
    for version in ("editable", "standard"):
        given[version] = {"shared_data": {}}
        build.Settings().initialize(version, given[version])
    assert given["standard"]["shared_data"] == {}
    ((source, target),) = given["editable"]["shared_data"].items()
    assert (ROOT / source).is_file()
    assert target.startswith("share/jupyter/lab/settings/overrides.d/")


def test_the_project_is_built_with_the_hook() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert (ROOT / wheel["hooks"]["custom"]["path"]) == FOLDER / "build.py"


def test_jupyterlab_finds_the_settings_and_knows_them(build: ModuleType, tmp_path: Path) -> None:
    place = tmp_path / Path(build.TARGET).relative_to("share/jupyter/lab/settings")
    place.parent.mkdir()
    shutil.copyfile(ROOT / build.SETTINGS, place)
    for plugin, settings in json.loads(place.read_text()).items():
        found, _ = get_settings(str(tmp_path), str(SCHEMAS), str(tmp_path / "own"), plugin)
        for key, value in settings.items():
            known = found["schema"]["properties"][key]
            assert known["default"] == value
            choices = [each["const"] for each in known.get("oneOf", ())]
            assert value in choices or known["type"] == "boolean"
