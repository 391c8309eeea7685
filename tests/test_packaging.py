"""What is shipped: the sdist and the wheel hold the built front end and install without Node."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import prosect

ROOT = Path(__file__).parents[1]

SHIPPED = [
    "prosect/__init__.py",
    "prosect/py.typed",
    "prosect/colours.json",
    "prosect/static/widget.js",
    "prosect/static/widget.css",
    "prosect/static/licences.txt",
    "prosect/static/page.js",
]


def run(*words: str | Path, path: str | None = None) -> str:
    """Run a command and return what it printed; a failure shows all of it."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if path is not None:
        environment["PATH"] = path
    done = subprocess.run(
        [str(word) for word in words],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist from the clone, and the wheel from the sdist where there is no Node."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder]
    run(*build, "--sdist", ROOT)
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist(folder)) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    nothing = tmp_path_factory.mktemp("no-node")
    run(*build, "--wheel", source, path=str(nothing))
    return folder


def sdist(folder: Path) -> Path:
    (path,) = folder.glob("prosect-*.tar.gz")
    return path


def wheel(folder: Path) -> Path:
    (path,) = folder.glob("prosect-*.whl")
    return path


def test_sdist_holds_the_built_front_end_and_its_sources(dist: Path) -> None:
    with tarfile.open(sdist(dist)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {f"widget/{name}" for name in SHIPPED}
    assert names >= {"pyproject.toml", "README.md", "LICENSE", "PKG-INFO", "js/package.json"}
    assert any(name.startswith("js/src/") for name in names)
    assert not [name for name in names if "node_modules" in name or "__pycache__" in name]


def test_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    with zipfile.ZipFile(wheel(dist)) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode()
    assert names >= set(SHIPPED)
    outside = [name for name in names if not name.startswith(("prosect/", "prosect-"))]
    assert outside == []
    assert not [name for name in names if name.endswith((".ts", ".tsx", ".map", ".pyc"))]
    assert "License-Expression: BSD-3-Clause" in text
    assert f"Version: {prosect.__version__}\n" in text
    for what in ("Homepage", "Source", "Issues", "Changelog"):
        assert f"Project-URL: {what}, https://github.com/prosect-dev/prosect" in text


def test_wheel_installs_in_a_clean_environment(dist: Path, tmp_path: Path) -> None:
    """The environment is new; only what prosect depends on is borrowed from this one."""
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", home)
    python = home / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel(dist))
    # Borrowed packages come after the environment's own, and without their .pth files,
    # among them the one by which this environment finds the clone.
    packages = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    borrowed = sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")})
    (Path(packages) / "borrowed.pth").write_text("\n".join(borrowed) + "\n")

    code = (
        "import prosect, importlib.resources as r, importlib.metadata as m, pathlib\n"
        "print(pathlib.Path(prosect.__file__).resolve())\n"
        "print(prosect.__version__, m.version('prosect'))\n"
        "for n in ('widget.js', 'widget.css', 'page.js'):\n"
        "    print(n, len(r.files('prosect').joinpath('static', n).read_text()))\n"
    )
    where, version, *static = run(python, "-I", "-c", code).splitlines()
    assert Path(where).is_relative_to(home.resolve())
    assert version == f"{prosect.__version__} {prosect.__version__}"
    assert [line.split()[0] for line in static] == ["widget.js", "widget.css", "page.js"]
    assert all(int(line.split()[1]) > 0 for line in static)
    assert "usage: prosect" in run(home / "bin" / "prosect", "--help")
    assert run(python, "-I", "-m", "prosect", "--version") == f"prosect {prosect.__version__}\n"
