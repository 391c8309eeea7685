"""The files of the house: what hosts and tools read parses, and refers to what is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
HOME = "https://github.com/prosect-dev/prosect"
FORMS = sorted(
    path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"
)
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def parsed(path: Path) -> dict[Any, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(content, dict)
    return content


def test_the_citation_names_the_software_and_the_three_papers() -> None:
    citation = parsed(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["message"]
    assert citation["title"] == "prosect"
    assert citation["type"] == "software"
    assert citation["authors"] == [{"name": "The prosect developers"}]
    assert citation["license"] == "BSD-3-Clause"
    assert citation["url"] == citation["repository-code"] == HOME
    papers = citation["references"]
    assert [paper["authors"][0]["family-names"] for paper in papers] == [
        "Mickus",
        "Kobayashi",
        "Brunner",
    ]
    for paper in papers:
        assert paper["type"] in ("article", "conference-paper")
        assert paper["title"]
        assert 2020 <= paper["year"] <= 2024
        assert all(set(author) == {"family-names", "given-names"} for author in paper["authors"])
        (identifier,) = paper["identifiers"]
        assert paper["url"] == "https://arxiv.org/abs/" + identifier["value"].removeprefix("arXiv:")


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_every_issue_form_is_one_that_a_host_can_show(path: Path) -> None:
    form = parsed(path)
    assert form["name"]
    assert form["description"]
    ids = [field["id"] for field in form["body"] if field["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in ("markdown", "textarea", "input", "dropdown", "checkboxes")
        assert field["attributes"].get("label") or field["attributes"].get("value")
    assert any(field.get("validations", {}).get("required") for field in form["body"])


@pytest.mark.parametrize("name", ["bug", "model"])
def test_reports_about_a_model_ask_for_the_doctor(name: str) -> None:
    form = parsed(ROOT / ".github/ISSUE_TEMPLATE" / f"{name}.yml")
    (doctor,) = [field for field in form["body"] if field.get("id") == "doctor"]
    assert "prosect.doctor(model)" in doctor["attributes"]["label"]
    assert doctor["validations"]["required"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_workflow_has_jobs_whose_steps_do_something(path: Path) -> None:
    workflow = parsed(path)
    assert True in workflow  # YAML 1.1 reads the key "on" so
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        assert all(("uses" in step) != ("run" in step) for step in job["steps"])
        folders = [step.get("working-directory", ".") for step in job["steps"]]
        assert all((ROOT / folder).is_dir() for folder in folders)


def test_continuous_integration_runs_the_script_that_everyone_runs() -> None:
    (job,) = parsed(ROOT / ".github/workflows/ci.yml")["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o100


def test_the_hooks_before_a_commit_run_what_lint_runs() -> None:
    (repository,) = parsed(ROOT / ".pre-commit-config.yaml")["repos"]
    assert repository["repo"] == "local"
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "imports", "pyright", "biome", "tsc"}
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").split("\nlint:")[1].split("\n\n")[0]
    for hook in hooks.values():
        assert hook["language"] == "system"
        first = shlex.split(hook["entry"])[0]
        assert first == "npm" or first.startswith(".venv/bin/")
        re.compile(hook.get("files", ""))
        action = shlex.split(hook["entry"])[-1] if first == "npm" else Path(first).name
        assert action.replace("python", "$(PY)") in lint.replace("$(BIN)/", "")
