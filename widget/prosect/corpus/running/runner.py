"""Run an analysis over many texts: map over shards and merge their results.

Texts are analysed in batches that are cut by index alone, so that the result does not depend on the
size of the shards or on the number of workers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypedDict, TypeVar

import numpy as np
import torch
import transformers
from tqdm.auto import tqdm

from prosect._version import __version__
from prosect.corpus.running.checkpoint import Checkpoint, digest
from prosect.corpus.running.timing import Stopwatch
from prosect.corpus.running.workers import (
    ModelReference,
    check_unmodified,
    fingerprint,
    one_model,
)
from prosect.corpus.statistics.moments import Arrays
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.lens import Lens
from prosect.validation import check_count

Item = TypeVar("Item")
TaskItem = TypeVar("TaskItem", contravariant=True)
MAX_PENDING_SHARDS = 64
"""The number of shards that an executor holds at most; the others are not submitted yet."""
VERSIONS = {
    "prosect": __version__,
    "torch": str(torch.__version__),
    "transformers": transformers.__version__,
    "numpy": np.__version__,
}


class Options(TypedDict, total=False):
    """How to run an experiment. The options change the result only through rounding of sums.

    Attributes
    ----------
    executor
        Any ``concurrent.futures.Executor``, such as a ``ProcessPoolExecutor`` or, for a cluster,
        Dask's ``Client.get_executor()``. None: this process. With PyTorch, spawned processes are
        the safer choice: ``ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))``. They
        import the script that starts them, so the call must stand under
        ``if __name__ == "__main__":``.
    checkpoint
        A folder for finished shards. The same run, started again, resumes from it; a run with a
        different model, text or setting does not use these shards. None: nothing is stored.
    batch
        The number of texts in one forward pass; 16 by default.
    shard
        The number of texts in one unit of work, rounded up to whole batches; 256 by default.
    progress
        Whether to show a progress bar; True by default.
    """

    executor: Executor | None
    checkpoint: str | os.PathLike[str] | None
    batch: int
    shard: int
    progress: bool


class Task(Protocol[TaskItem]):
    """An analysis: a frozen dataclass whose fields are its settings, plain data or arrays.

    Random choices for an item must depend on a seed and on the item, never on its index.
    """

    name: ClassVar[str]

    def measure(self, lens: Lens, items: Sequence[TaskItem]) -> Arrays:
        """Return the result for a batch of items."""
        ...

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """Merge the results of consecutive items; associative."""
        ...


@dataclass(frozen=True)
class Outcome:
    """The result of a run.

    Attributes
    ----------
    arrays
        The merged result of all items.
    items
        The number of items that were analysed.
    skipped
        The number of items that were skipped because their text does not fit the model.
    fingerprint
        The fingerprint of the model.
    seconds
        The duration of this run, without shards that were read from a checkpoint.
    """

    arrays: Arrays
    items: int
    skipped: int
    fingerprint: str
    seconds: float


def run(
    task: Task[Item],
    model: Lens | str,
    items: Sequence[Item],
    text: Callable[[Item], str] = str,
    *,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    batch: int = 16,
    shard: int = 256,
    progress: bool = True,
) -> Outcome:
    """Analyse all items with one model.

    Parameters
    ----------
    task
        The analysis.
    model
        A lens, or a name for ``prosect.load``. Workers load a model by its name, and a lens from a
        file in the checkpoint folder (without one, in a temporary folder on this machine).
    items
        Texts, or plain dataclasses with a text.
    text
        Returns the text of an item; other processes must be able to import the function.
    executor, checkpoint, batch, shard, progress
        See :class:`Options`.

    Raises
    ------
    ProsectError
        If an option is out of range, no text fits the model, a text cannot be analysed, or a worker
        died (a checkpoint then holds the finished shards).
    """
    for name, count in (("batch", batch), ("shard", shard)):
        check_count(count, name)
    batch, shard = int(batch), int(shard)
    if checkpoint is not None and not (isinstance(checkpoint, str | os.PathLike) and checkpoint):
        raise TypeError(f"checkpoint must be the path of a folder, got {checkpoint!r}.")
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor (for Dask: client.get_executor()), "
            f"got {type(executor).__name__}."
        )
    clock = Stopwatch()
    lens, name = one_model(model)
    if executor is not None or checkpoint is not None:
        check_unmodified(lens)
    mark = fingerprint(lens)
    store = None
    if checkpoint is not None:
        key = digest({"versions": VERSIONS, "model": mark, "task": task, "batch": batch})
        store = Checkpoint(checkpoint, task.name, key)
    size = -(-shard // batch) * batch
    shards = [
        Shard(first, items[first : first + size], batch) for first in range(0, len(items), size)
    ]
    if executor is None:
        results = _run_locally(task, lens, shards, text, store, progress)
    else:
        folder = None if checkpoint is None else Path(checkpoint).expanduser()
        reference = ModelReference.of(lens, mark, name, folder)
        results = _run_in_executor(task, reference, shards, text, store, progress, executor)
    tree = MergeTree(task)
    for arrays in results:
        tree.add(arrays)
    merged = tree.result()
    measured = 0 if merged is None else int(merged.pop(_ITEMS))
    if merged is None or measured == 0:
        raise ProsectError(
            f"None of the {len(items)} texts fits {lens.name}: they are empty or too long."
        )
    return Outcome(merged, measured, len(items) - measured, mark, clock.seconds)


_ITEMS = "items"
"""The key under which the result of a shard holds its number of items."""


@dataclass(frozen=True)
class Shard(Generic[Item]):
    """Consecutive items, from index ``first``, in batches."""

    first: int
    items: Sequence[Item]
    batch: int

    @property
    def name(self) -> str:
        """The name in a checkpoint: the index of the first item, and a digest of all items."""
        return f"{self.first:08d}-{digest(list(self.items))}"

    def batches(self) -> Iterator[tuple[int, Sequence[Item]]]:
        """Yield each batch with the index of its first item."""
        for start in range(0, len(self.items), self.batch):
            yield self.first + start, self.items[start : start + self.batch]


@dataclass
class MergeTree:
    """Merges consecutive results pairwise, so that an array is copied O(log shards) times."""

    task: Task[Any]
    _pending: list[tuple[int, Arrays]] = field(default_factory=list)

    def add(self, arrays: Arrays) -> None:
        """Add the result of the next shard."""
        weight = 1
        while self._pending and self._pending[-1][0] == weight:
            arrays = _merge(self.task, self._pending.pop()[1], arrays)
            weight *= 2
        self._pending.append((weight, arrays))

    def result(self) -> Arrays | None:
        """The merged result of all shards; None if there were none."""
        if not self._pending:
            return None
        parts = [arrays for _, arrays in self._pending]
        return dict(reduce(lambda later, earlier: _merge(self.task, earlier, later), parts[::-1]))


def _merge(task: Task[Any], first: Arrays, second: Arrays) -> Arrays:
    """Merge the results of two ranges of items, either of which may hold no measured item."""
    count = first[_ITEMS] + second[_ITEMS]
    if not first[_ITEMS]:
        merged = second
    elif not second[_ITEMS]:
        merged = first
    else:
        merged = task.merge(
            {name: array for name, array in first.items() if name != _ITEMS},
            {name: array for name, array in second.items() if name != _ITEMS},
        )
    return {**merged, _ITEMS: count}


def measure_shard(
    task: Task[Item],
    lens: Lens,
    shard: Shard[Item],
    text: Callable[[Item], str],
    tick: Callable[[int], Any] = int,
) -> Arrays:
    """Return the result of a shard; ``tick`` is called with the number of items of every batch."""
    tree = MergeTree(task)
    for first, items in shard.batches():
        fitting = [item for item in items if lens.fits(text(item))]
        arrays: Arrays = {}
        try:
            arrays = task.measure(lens, fitting) if fitting else {}
        except UnsupportedModelError:
            raise  # concerns the model, whatever the texts
        except ProsectError as error:
            last = first + len(items) - 1
            raise type(error)(f"In texts {first} to {last}: {error}") from error
        tree.add({**arrays, _ITEMS: np.array(len(fitting))})
        tick(len(items))
    merged = tree.result()
    assert merged is not None
    return merged


def _run_locally(
    task: Task[Item],
    lens: Lens,
    shards: Sequence[Shard[Item]],
    text: Callable[[Item], str],
    store: Checkpoint | None,
    progress: bool,
) -> Iterator[Arrays]:
    """Yield the result of each shard in order, computed in this process."""
    with _progress_bar(task, shards, progress) as bar:
        for shard in shards:
            arrays = store.read(shard.name) if store else None
            if arrays is None:
                arrays = measure_shard(task, lens, shard, text, bar.update)
                if store:
                    store.write(shard.name, arrays)
            else:
                _count_as_done(bar, shard)
            yield arrays


def work(
    task: Task[Item], reference: ModelReference, shard: Shard[Item], text: Callable[[Item], str]
) -> Arrays:
    """Measure one shard in a worker, with the model that its process has loaded or loads now."""
    return measure_shard(task, reference.lens(), shard, text)


def _run_in_executor(
    task: Task[Item],
    reference: ModelReference,
    shards: Sequence[Shard[Item]],
    text: Callable[[Item], str],
    store: Checkpoint | None,
    progress: bool,
    executor: Executor,
) -> Iterator[Arrays]:
    """Yield the result of each shard in order, computed by the workers of an executor."""
    running: dict[Future[Arrays], int] = {}
    finished: dict[int, Arrays] = {}
    remaining = iter(enumerate(shards))
    next_number = 0
    with _progress_bar(task, shards, progress) as bar:
        try:
            while next_number < len(shards):
                free = MAX_PENDING_SHARDS - len(running) - len(finished)
                for number, shard in islice(remaining, free):
                    arrays = store.read(shard.name) if store else None
                    if arrays is None:
                        running[_submit(executor, task, reference, shard, text)] = number
                    else:
                        finished[number] = arrays
                        _count_as_done(bar, shard)
                while next_number in finished:
                    yield finished.pop(next_number)
                    next_number += 1
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    arrays = future.result()
                    if store:
                        store.write(shards[number].name, arrays)
                    finished[number] = arrays
                    bar.update(len(shards[number].items))
        except BrokenExecutor as error:
            advice = (
                "give a folder as checkpoint= to store finished shards"
                if store is None
                else "the checkpoint holds the finished shards: run again with a new executor"
            )
            raise ProsectError(f"A worker of the executor died; {advice}.") from error
        finally:
            for future in running:
                future.cancel()


def _submit(
    executor: Executor,
    task: Task[Item],
    reference: ModelReference,
    shard: Shard[Item],
    text: Callable[[Item], str],
) -> Future[Arrays]:
    try:
        return executor.submit(work, task, reference, shard, text)
    except BrokenExecutor:
        raise
    except RuntimeError as error:
        raise ProsectError(f"The executor accepts no work: {error}.") from error


def _progress_bar(task: Task[Any], shards: Sequence[Shard[Any]], progress: bool) -> Any:
    total = sum(len(shard.items) for shard in shards)
    return tqdm(total=total, unit="text", desc=task.name, disable=not progress)


def _count_as_done(bar: Any, shard: Shard[Any]) -> None:
    """Advance the bar by a finished shard, without effect on the rate and the remaining time."""
    if not bar.disable:
        bar.initial += len(shard.items)
    bar.update(len(shard.items))


def concatenate(first: Arrays, second: Arrays) -> Arrays:
    """Concatenate the arrays of consecutive items along their first axis."""
    return {name: np.concatenate([array, second[name]]) for name, array in first.items()}
