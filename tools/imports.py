"""Draw the imports between the packages of prosect into ARCHITECTURE.md, and check their order.

``python tools/imports.py`` writes the diagram; ``--check`` writes nothing and fails if the diagram
is out of date or an import breaks a rule. The rules are the tables below. Only the standard library
is used, and nothing of prosect is executed: the imports are read from the source.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "widget" / "prosect"
PAGE = ROOT / "ARCHITECTURE.md"
BEGIN = "<!-- imports: written by tools/imports.py -->"
END = "<!-- imports: end -->"

Layers = Sequence[tuple[str, Sequence[str]]]
Arrow = tuple[str, str]

LAYERS: Layers = (
    ("Entry points", ("__main__", "cli", "prosect")),
    (
        "Whole models, many texts",
        (
            "doctor",
            "corpus",
            "corpus.experiments",
            "corpus.running",
            "corpus.data",
            "corpus.statistics",
        ),
    ),
    ("What readers see", ("views", "page", "figures")),
    ("One text through one model", ("lens", "trace")),
    ("Results", ("analyses",)),
    ("Reading a model", ("demo", "hub", "unwrap", "capture", "anatomy")),
    ("Computation on tensors", ("engines",)),
    (
        "Base",
        ("tokens", "validation", "modes", "frontend", "optional", "colours", "_version", "errors"),
    ),
)
"""The packages from top to bottom; each imports only packages that come after it.

A module at the root is a package of its own, and ``prosect`` is its ``__init__``.
"""

EXCEPTIONS: Mapping[Arrow, str] = {
    ("trace", "views"): "Trace.explore() opens the Explorer",
}
"""Arrows that point upwards on purpose: each import stands inside a function."""

ONLY: Mapping[str, frozenset[str]] = {
    "engines": frozenset({"errors"}),
}
"""All that these packages may import of prosect."""

FOREIGN: Mapping[str, frozenset[str]] = {
    "engines": frozenset({"transformers", "tokenizers", "ipywidgets", "anywidget"}),
    "anatomy": frozenset({"ipywidgets", "anywidget"}),
    "capture": frozenset({"ipywidgets", "anywidget"}),
    "analyses": frozenset({"ipywidgets", "anywidget"}),
}
"""Libraries that these packages may not import at runtime."""


@dataclass(frozen=True)
class Import:
    """One import of a module: ``kind`` is "runtime", "deferred" (in a function) or "types"."""

    importer: str
    imported: str
    kind: str


@dataclass
class Imports:
    """The modules of a package, by dotted name relative to it, and the imports among them."""

    lines: dict[str, int] = field(default_factory=dict)
    summaries: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    inside: list[Import] = field(default_factory=list)
    foreign: list[Import] = field(default_factory=list)

    def home(self, module: str) -> str:
        """The package that a module belongs to; a module at the root is its own."""
        while module and module not in self.packages:
            parent = module.rpartition(".")[0]
            if not parent:
                return module
            module = parent
        return module or "prosect"

    def homes(self) -> set[str]:
        """Every package that has a module."""
        return {self.home(module) for module in self.lines}

    def modules_between(self, types: bool = False) -> set[Arrow]:
        """The arrows between modules, at runtime or for type checkers alone."""
        return {
            (found.importer, found.imported)
            for found in self.inside
            if (found.kind == "types") == types
        }

    def between(self) -> dict[Arrow, list[Import]]:
        """The arrows between packages at runtime, each with the imports that make it."""
        arrows: dict[Arrow, list[Import]] = {}
        for found in self.inside:
            arrow = self.home(found.importer), self.home(found.imported)
            if found.kind != "types" and arrow[0] != arrow[1]:
                arrows.setdefault(arrow, []).append(found)
        return arrows


# --- reading --------------------------------------------------------------------------------------


def read(package: Path) -> Imports:
    """Read the imports of every module under a package's folder."""
    made = Imports()
    trees: dict[str, ast.Module] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
            made.packages.add(".".join(parts))
        module = ".".join(parts)
        source = path.read_text(encoding="utf-8")
        trees[module] = ast.parse(source, str(path))
        made.lines[module] = len(source.splitlines())
        summary = (ast.get_docstring(trees[module]) or "").partition("\n")[0]
        made.summaries[module] = summary.replace("``", "`").replace("|", "\\|")
    for module, tree in trees.items():
        for name, kind in _imports(tree, module, package.name, made, "runtime"):
            top, _, rest = name.partition(".")
            if top != package.name:
                made.foreign.append(Import(module, top, kind))
            elif rest in trees and rest != module:
                made.inside.append(Import(module, rest, kind))
    return made


def _imports(
    node: ast.AST, module: str, package: str, made: Imports, kind: str
) -> Iterator[tuple[str, str]]:
    """The absolute names that a module imports; a name may be a module or something in one."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((alias.name, kind) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            origin = _origin(child, module, package, made)
            for alias in child.names:
                within = f"{origin}.{alias.name}".partition(".")[2]
                named = origin.partition(".")[0] == package and within in made.lines
                yield (f"{origin}.{alias.name}" if named else origin), kind
        elif isinstance(child, ast.If) and _asks_for_types(child.test):
            block = ast.Module(child.body, [])
            yield from _imports(block, module, package, made, "types")
            yield from _imports(ast.Module(child.orelse, []), module, package, made, kind)
        else:
            later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            inner = "deferred" if later and kind == "runtime" else kind
            yield from _imports(child, module, package, made, inner)


def _origin(node: ast.ImportFrom, module: str, package: str, made: Imports) -> str:
    """The module that ``from … import`` names, made absolute."""
    if not node.level:
        return node.module or ""
    parts = [package, *(part for part in module.split(".") if part)]
    up = node.level - 1 if module in made.packages else node.level
    parts = parts[: len(parts) - up]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _asks_for_types(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


# --- checking -------------------------------------------------------------------------------------


def problems(
    imports: Imports,
    layers: Layers,
    exceptions: Mapping[Arrow, str],
    only: Mapping[str, frozenset[str]],
    foreign: Mapping[str, frozenset[str]],
) -> list[str]:
    """What breaks a rule, one sentence each."""
    place = {name: number for number, name in enumerate(_in_order(layers))}
    told = [
        f"The package {name!r} is in no layer: add it to LAYERS in tools/imports.py."
        for name in sorted(imports.homes() - set(place))
    ]
    arrows = imports.between()
    for arrow, reason in exceptions.items():
        made = arrows.pop(arrow, [])
        if not made:
            told.append(f"{arrow[0]} does not import {arrow[1]}: delete the exception ({reason}).")
        told += [
            f"{_file(found.importer, imports)} imports {_dotted(found.imported)} outside a "
            "function: this upward import must stand inside one."
            for found in made
            if found.kind != "deferred"
        ]
    circle = _circle(arrows)
    if circle:
        told.append(f"The packages import one another in a circle: {' → '.join(circle)}.")
    for (above, below), made in sorted(arrows.items()):
        for found in made:
            who, what = _file(found.importer, imports), _dotted(found.imported)
            if above in only and below not in only[above]:
                allowed = ", ".join(sorted(only[above])) or "nothing"
                told.append(f"{who} imports {what}: of prosect, {above} may import only {allowed}.")
            elif above in place and below in place and place[above] > place[below]:
                told.append(f"{who} imports {what}: {below} is above {above} in LAYERS.")
    told += [
        f"{_file(found.importer, imports)} imports {found.imported}: {home} may not."
        for found in imports.foreign
        if found.kind != "types"
        and found.imported in foreign.get(home := imports.home(found.importer), ())
    ]
    return told


def _in_order(layers: Layers) -> list[str]:
    return [name for _, names in layers for name in names]


def _circle(arrows: Mapping[Arrow, object]) -> list[str]:
    """One circle among the arrows, its first package again at the end; empty if there is none."""
    following: dict[str, list[str]] = {}
    for start, end in sorted(arrows):
        following.setdefault(start, []).append(end)
    finished: set[str] = set()

    def walk(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in finished:
            return []
        for end in following.get(name, ()):
            found = walk(end, [*path, name])
            if found:
                return found
        finished.add(name)
        return []

    return next(filter(None, (walk(name, []) for name in following)), [])


def _file(module: str, imports: Imports) -> str:
    path = module.replace(".", "/")
    if module in imports.packages:
        return f"{path}/__init__.py".lstrip("/")
    return f"{path}.py"


def _dotted(module: str) -> str:
    return f"prosect.{module}" if module else "prosect"


# --- drawing --------------------------------------------------------------------------------------


def drawing(imports: Imports, layers: Layers, exceptions: Mapping[Arrow, str]) -> str:
    """The diagram and the table of direct imports, as Markdown."""
    homes, arrows = imports.homes(), imports.between()
    *shown, (_, base) = layers
    straight = {arrow for arrow in arrows if arrow[1] not in base and arrow not in exceptions}
    lines = ["```mermaid", "flowchart TD"]
    for number, (title, names) in enumerate(layers):
        inside = [name for name in names if name in homes]
        if inside:
            lines.append(f'    subgraph layer{number}["{title}"]')
            lines += [f'        {_node(name)}["{name}"]' for name in inside]
            lines.append("    end")
    order = [name for _, names in shown for name in names]
    for start, end in sorted(_shortest(straight), key=lambda a: (_at(order, a[0]), a[1])):
        lines.append(f"    {_node(start)} --> {_node(end)}")
    for (start, end), reason in exceptions.items():
        if (start, end) in arrows:
            lines.append(f'    {_node(start)} -. "{reason}" .-> {_node(end)}')
    lines += ["```", "", "| package | what it is | imports |", "| --- | --- | --- |"]
    everything = _in_order(layers)
    for name in (name for name in everything if name in homes):
        summary = imports.summaries["" if name == "prosect" else name]
        below = sorted((end for start, end in arrows if start == name), key=everything.index)
        lines.append(f"| `{name}` | {summary} | {', '.join(below) or 'nothing'} |")
    return "\n".join(lines)


def _shortest(arrows: set[Arrow]) -> set[Arrow]:
    """The arrows that no longer way implies."""

    def reaches(start: str, end: str, left_out: Arrow) -> bool:
        seen, waiting = {start}, [start]
        while waiting:
            at = waiting.pop()
            for one, other in arrows:
                if one == at and (one, other) != left_out and other not in seen:
                    seen.add(other)
                    waiting.append(other)
        return end in seen

    return {arrow for arrow in arrows if not reaches(*arrow, arrow)}


def _at(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _node(name: str) -> str:
    return f"p_{name.replace('.', '_')}"


def updated(page: str, drawn: str) -> str:
    """The page with the part between the markers replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"The page needs the lines {BEGIN!r} and {END!r}.")
    return f"{before}{BEGIN}\n\n{drawn}\n\n{END}{after}"


def counts(imports: Imports) -> str:
    """How large the package is and how much of it hangs together."""
    between = imports.between()
    return (
        f"{len(imports.lines)} modules, {sum(imports.lines.values())} lines, "
        f"{len(imports.modules_between())} arrows between modules "
        f"(and {len(imports.modules_between(types=True))} for types alone), "
        f"{len(imports.homes())} packages, {len(between)} arrows between packages"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the diagram; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="the folder to read")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    options = parser.parse_args(arguments)

    imports = read(options.package)
    print(counts(imports))
    told = problems(imports, LAYERS, EXCEPTIONS, ONLY, FOREIGN)
    if not any("is in no layer" in sentence for sentence in told):
        page = options.page.read_text(encoding="utf-8")
        wanted = updated(page, drawing(imports, LAYERS, EXCEPTIONS))
        if not options.check:
            options.page.write_text(wanted, encoding="utf-8")
        elif page != wanted:
            told.append(f"{options.page.name} is out of date: run python tools/imports.py.")
    for sentence in told:
        print(sentence, file=sys.stderr)
    return 1 if told else 0


if __name__ == "__main__":
    sys.exit(main())
