"""The script that draws the imports finds what breaks the order, in packages made for it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "imports.py"
ORDER = (("Top", ("prosect", "high")), ("Middle", ("middle",)), ("Base", ("low",)))


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("imports_of_prosect", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Three packages and the root, each with a file of its own."""
    return write(
        tmp_path / "prosect",
        {
            "__init__.py": '"""All of it."""\nfrom prosect.high import a\n',
            "high/__init__.py": '"""The top."""\n',
            "high/a.py": "from prosect.middle.b import thing\nimport prosect.low\n",
            "middle/__init__.py": '"""Between ``two``."""\n',
            "middle/b.py": "from prosect import low\nthing = low\n",
            "low.py": '"""The | base."""\n',
        },
    )


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def told(tool: Any, package: Path, **rules: Any) -> list[str]:
    given = {"layers": ORDER, "exceptions": {}, "only": {}, "foreign": {}, **rules}
    return tool.problems(tool.read(package), **given)


def test_a_package_in_order_has_nothing_to_be_told(tool: Any, package: Path) -> None:
    assert told(tool, package) == []
    assert tool.counts(tool.read(package)) == (
        "6 modules, 9 lines, 4 arrows between modules (and 0 for types alone), "
        "4 packages, 4 arrows between packages"
    )


def test_a_circle_is_found_and_named(tool: Any, package: Path) -> None:
    write(package, {"middle/c.py": "from prosect.high import a\n"})
    circle, upwards = told(tool, package)
    assert circle == "The packages import one another in a circle: high → middle → high."
    assert upwards == "middle/c.py imports prosect.high.a: high is above middle in LAYERS."


def test_an_import_that_points_upwards_is_found_wherever_it_stands(
    tool: Any, package: Path
) -> None:
    upwards = ["low.py imports prosect.middle.b: middle is above low in LAYERS."]
    (package / "middle" / "b.py").write_text("thing = 1\n")
    for text in (
        "from prosect.middle.b import thing\n",
        "import prosect.middle.b as b\n",
        "from .middle import b\n",
        "from .middle.b import thing\n",
        "def f():\n    if f:\n        from prosect.middle import b\n",
        "try:\n    from prosect.middle import b\nexcept ImportError:\n    pass\n",
    ):
        write(package, {"low.py": text})
        assert told(tool, package) == upwards, text


def test_an_import_for_types_alone_may_point_anywhere(tool: Any, package: Path) -> None:
    text = "import typing\nif typing.TYPE_CHECKING:\n    from prosect.middle import b\n"
    write(package, {"low.py": text})
    assert told(tool, package) == []
    write(package, {"low.py": f"{text}else:\n    from prosect.middle import b\n"})
    assert len(told(tool, package)) == 2  # the circle and the arrow


def test_an_exception_stands_inside_a_function_and_is_used(tool: Any, package: Path) -> None:
    given: dict[str, Any] = {"exceptions": {("low", "high"): "for a reason"}}
    (unused,) = told(tool, package, **given)
    assert unused == "low does not import high: delete the exception (for a reason)."
    write(package, {"low.py": "from prosect.high import a\n"})
    (outside,) = told(tool, package, **given)
    assert "low.py imports prosect.high.a outside a function" in outside
    write(package, {"low.py": "def f():\n    from prosect.high import a\n"})
    assert told(tool, package, **given) == []
    drawn = tool.drawing(tool.read(package), ORDER, **given)
    assert 'p_low -. "for a reason" .-> p_high' in drawn


def test_what_a_package_may_import_of_prosect_and_of_others_is_a_table(
    tool: Any, package: Path
) -> None:
    only = {"high": frozenset({"middle"})}
    assert told(tool, package, only=only) == [
        "high/a.py imports prosect.low: of prosect, high may import only middle."
    ]
    write(package, {"middle/b.py": "import torch.nn\nthing = 1\n"})
    foreign = {"middle": frozenset({"torch"})}
    assert told(tool, package, foreign=foreign) == ["middle/b.py imports torch: middle may not."]


def test_a_package_of_no_layer_is_told(tool: Any, package: Path) -> None:
    write(package, {"new/__init__.py": "", "new/d.py": ""})
    assert told(tool, package) == [
        "The package 'new' is in no layer: add it to LAYERS in tools/imports.py."
    ]


def test_the_diagram_has_no_arrow_that_a_longer_way_implies(tool: Any, package: Path) -> None:
    layers = (*ORDER[:2], ("Also", ("low",)), ("Base", ()))
    drawn = tool.drawing(tool.read(package), layers, {})
    arrows = [line.strip() for line in drawn.splitlines() if "-->" in line]
    assert arrows == ["p_prosect --> p_high", "p_high --> p_middle", "p_middle --> p_low"]
    assert "| `high` | The top. | middle, low |" in drawn
    assert "| `middle` | Between `two`. | low |" in drawn
    assert "| `low` | The \\| base. | nothing |" in drawn


def test_a_stale_diagram_is_found_and_written_anew(
    tool: Any, package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for table, value in {"LAYERS": ORDER, "EXCEPTIONS": {}, "ONLY": {}, "FOREIGN": {}}.items():
        monkeypatch.setattr(tool, table, value)
    page = package.parent / "page.md"
    page.write_text(f"Before.\n\n{tool.BEGIN}\n{tool.END}\n\nAfter.\n")
    options = ["--package", str(package), "--page", str(page)]
    assert tool.main([*options, "--check"]) == 1
    assert "page.md is out of date: run python tools/imports.py." in capsys.readouterr().err
    assert tool.main(options) == 0
    assert tool.main([*options, "--check"]) == 0
    text = page.read_text()
    assert text.startswith("Before.\n")
    assert text.endswith("\nAfter.\n")
    write(package, {"middle/b.py": "thing = 1\n"})
    assert tool.main([*options, "--check"]) == 1
    assert page.read_text() == text


def test_a_page_without_the_markers_is_refused(tool: Any) -> None:
    with pytest.raises(ValueError, match="needs the lines"):
        tool.updated("# Nothing to replace\n", "drawn")
