"""Run an analysis over many texts: a map over shards of them and a merge of what each leaves.

Texts are analysed a batch at a time, and batches are cut by the texts' numbers alone, so that the
result does not depend on how the shards were cut, or on who took part.
"""

from __future__ import annotations

import os
import time
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
from prosect.corpus.running.workers import Opener, check_as_built, fingerprint, one_model
from prosect.corpus.statistics.moments import Arrays
from prosect.errors import ProsectError, UnsupportedModelError
from prosect.lens import Lens
from prosect.validation import check_count

Item = TypeVar("Item")
Taken = TypeVar("Taken", contravariant=True)
AHEAD = 64
"""How many shards wait at an executor at most; the others stay where they are."""
VERSIONS = {
    "prosect": __version__,
    "torch": str(torch.__version__),
    "transformers": transformers.__version__,
    "numpy": np.__version__,
}


class Options(TypedDict, total=False):
    """How to run an experiment; none of it changes the result, but for how sums are rounded.

    Attributes
    ----------
    executor
        Any ``concurrent.futures.Executor``, such as a ``ProcessPoolExecutor`` or, for a cluster,
        Dask's ``Client.get_executor()``. None: in this process. Processes that are started afresh,
        which is the safer way with PyTorch, import the script that started them:
        ``ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))``, and in a script the call
        stands under ``if __name__ == "__main__":``.
    checkpoint
        A folder for finished shards. The same run, started again, goes on where it was stopped; a
        run with another model, text or setting does not use them. None: nothing is kept.
    batch
        How many texts go through the model at once; 16.
    shard
        How many texts are one piece of work, rounded up to whole batches; 256.
    progress
        Show a bar with rate and time left; True.
    """

    executor: Executor | None
    checkpoint: str | os.PathLike[str] | None
    batch: int
    shard: int
    progress: bool


class Task(Protocol[Taken]):
    """An analysis: a frozen dataclass whose fields are its settings, plain data or arrays.

    Whatever it draws at random for an item depends on a seed and on the item, never on its place.
    """

    name: ClassVar[str]

    def measure(self, lens: Lens, items: Sequence[Taken]) -> Arrays:
        """What a batch of items leaves."""
        ...

    def merge(self, first: Arrays, second: Arrays) -> Arrays:
        """What consecutive items leave together; associative."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What a run left.

    Attributes
    ----------
    arrays
        Of all items together.
    items
        How many were analysed.
    skipped
        How many were not, because their text does not fit the model.
    fingerprint
        Of the model.
    seconds
        How long this run took; shards that were finished before take no time.
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
        What to do with a batch of them.
    model
        A lens, or a name for ``prosect.load``: then every worker loads it by that name, else from a
        file in the checkpoint folder (or a temporary one, on this machine).
    items
        Texts, or plain dataclasses that have one.
    text
        The text of an item; a function that other processes can import.
    executor, checkpoint, batch, shard, progress
        See :class:`Options`.

    Raises
    ------
    ProsectError
        If an option is out of range, no text fits the model, a text cannot be analysed, or a worker
        died (what was finished is kept where there is a checkpoint).
    """
    for name, count in (("batch", batch), ("shard", shard)):
        check_count(count, f"{name} counts texts")
    batch, shard = int(batch), int(shard)
    if checkpoint is not None and not (isinstance(checkpoint, str | os.PathLike) and checkpoint):
        raise TypeError(f"checkpoint must be the path of a folder, not {checkpoint!r}.")
    if executor is not None and not isinstance(executor, Executor):
        raise TypeError(
            "executor must be a concurrent.futures.Executor (for Dask: client.get_executor()), "
            f"not {type(executor).__name__}."
        )
    started = time.perf_counter()
    lens, name = one_model(model)
    if executor is not None or checkpoint is not None:
        check_as_built(lens)
    mark = fingerprint(lens)
    store = None
    if checkpoint is not None:
        key = digest({"versions": VERSIONS, "model": mark, "task": task, "batch": batch})
        store = Checkpoint(checkpoint, task.name, key)
    size = -(-shard // batch) * batch
    shards = [
        Shard(first, items[first : first + size], batch) for first in range(0, len(items), size)
    ]
    folder = None if checkpoint is None else Path(checkpoint).expanduser()
    if executor is None:
        done = _here(task, lens, shards, text, store, progress)
    else:
        opener = Opener.of(lens, mark, name, folder)
        done = _elsewhere(task, opener, shards, text, store, progress, executor)
    merged = Merged(task)
    for arrays in done:
        merged.add(arrays)
    found = merged.all()
    measured = 0 if found is None else int(found.pop(_ITEMS))
    if found is None or measured == 0:
        raise ProsectError(
            f"None of the {len(items)} texts fits {lens.name}: they are empty or too long."
        )
    seconds = time.perf_counter() - started
    return Outcome(found, measured, len(items) - measured, mark, seconds)


_ITEMS = "items"


@dataclass(frozen=True)
class Shard(Generic[Item]):
    """Some consecutive items, from the one with number ``first``, in batches."""

    first: int
    items: Sequence[Item]
    batch: int

    @property
    def name(self) -> str:
        """In a checkpoint: what it holds, and where it begins for the reader's sake."""
        return f"{self.first:08d}-{digest(list(self.items))}"

    def batches(self) -> Iterator[tuple[int, Sequence[Item]]]:
        """Each batch with the number of its first item."""
        for start in range(0, len(self.items), self.batch):
            yield self.first + start, self.items[start : start + self.batch]


@dataclass
class Merged:
    """Merges what comes, in order, in a tree: every array is copied a few times, not once a shard."""

    task: Task[Any]
    _waiting: list[tuple[int, Arrays]] = field(default_factory=list)

    def add(self, arrays: Arrays) -> None:
        """Take what the next shard left."""
        weight = 1
        while self._waiting and self._waiting[-1][0] == weight:
            arrays = _merge(self.task, self._waiting.pop()[1], arrays)
            weight *= 2
        self._waiting.append((weight, arrays))

    def all(self) -> Arrays | None:
        """What all left together; None where there was nothing."""
        if not self._waiting:
            return None
        parts = [arrays for _, arrays in self._waiting]
        return dict(reduce(lambda later, earlier: _merge(self.task, earlier, later), parts[::-1]))


def _merge(task: Task[Any], first: Arrays, second: Arrays) -> Arrays:
    """Merge what two stretches of items left, either of which may have measured nothing."""
    count = first[_ITEMS] + second[_ITEMS]
    if not first[_ITEMS]:
        kept = second
    elif not second[_ITEMS]:
        kept = first
    else:
        kept = task.merge(
            {name: array for name, array in first.items() if name != _ITEMS},
            {name: array for name, array in second.items() if name != _ITEMS},
        )
    return {**kept, _ITEMS: count}


def measured(
    task: Task[Item],
    lens: Lens,
    shard: Shard[Item],
    text: Callable[[Item], str],
    tick: Callable[[int], Any] = int,
) -> Arrays:
    """What a shard leaves; ``tick`` hears of every batch how many items it had."""
    merged = Merged(task)
    for first, items in shard.batches():
        fitting = [item for item in items if lens.fits(text(item))]
        arrays: Arrays = {}
        try:
            arrays = task.measure(lens, fitting) if fitting else {}
        except UnsupportedModelError:
            raise  # it is about the model, whatever the texts
        except ProsectError as error:
            last = first + len(items) - 1
            raise type(error)(f"In texts {first} to {last}: {error}") from error
        merged.add({**arrays, _ITEMS: np.array(len(fitting))})
        tick(len(items))
    found = merged.all()
    assert found is not None
    return found


def _here(
    task: Task[Item],
    lens: Lens,
    shards: Sequence[Shard[Item]],
    text: Callable[[Item], str],
    store: Checkpoint | None,
    progress: bool,
) -> Iterator[Arrays]:
    """What each shard leaves, in order, in this process."""
    with _bar(task, shards, progress) as bar:
        for shard in shards:
            found = store.read(shard.name) if store else None
            if found is None:
                found = measured(task, lens, shard, text, bar.update)
                if store:
                    store.write(shard.name, found)
            else:
                _resume(bar, shard)
            yield found


def work(
    task: Task[Item], opener: Opener, shard: Shard[Item], text: Callable[[Item], str]
) -> Arrays:
    """A worker's part: one shard, with the model that the process opened before, or opens now."""
    return measured(task, opener.open(), shard, text)


def _elsewhere(
    task: Task[Item],
    opener: Opener,
    shards: Sequence[Shard[Item]],
    text: Callable[[Item], str],
    store: Checkpoint | None,
    progress: bool,
    executor: Executor,
) -> Iterator[Arrays]:
    """What each shard leaves, in order, from the workers of an executor."""
    running: dict[Future[Arrays], int] = {}
    finished: dict[int, Arrays] = {}
    coming = iter(enumerate(shards))
    following = 0
    with _bar(task, shards, progress) as bar:
        try:
            while following < len(shards):
                for number, shard in islice(coming, AHEAD - len(running) - len(finished)):
                    found = store.read(shard.name) if store else None
                    if found is None:
                        running[_submitted(executor, task, opener, shard, text)] = number
                    else:
                        finished[number] = found
                        _resume(bar, shard)
                while following in finished:
                    yield finished.pop(following)
                    following += 1
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    number = running.pop(future)
                    found = future.result()
                    if store:
                        store.write(shards[number].name, found)
                    finished[number] = found
                    bar.update(len(shards[number].items))
        except BrokenExecutor as error:
            kept = (
                "give checkpoint= a folder so that finished work is kept"
                if store is None
                else "finished work is kept in the checkpoint: run it again with a new executor"
            )
            raise ProsectError(f"A worker of the executor died; {kept}.") from error
        finally:
            for future in running:
                future.cancel()


def _submitted(
    executor: Executor,
    task: Task[Item],
    opener: Opener,
    shard: Shard[Item],
    text: Callable[[Item], str],
) -> Future[Arrays]:
    try:
        return executor.submit(work, task, opener, shard, text)
    except BrokenExecutor:
        raise
    except RuntimeError as error:
        raise ProsectError(f"The executor takes no work: {error}.") from error


def _bar(task: Task[Any], shards: Sequence[Shard[Any]], progress: bool) -> Any:
    total = sum(len(shard.items) for shard in shards)
    return tqdm(total=total, unit="text", desc=task.name, disable=not progress)


def _resume(bar: Any, shard: Shard[Any]) -> None:
    """Count what was finished before as done, but not in the rate and the time left."""
    if not bar.disable:
        bar.initial += len(shard.items)
    bar.update(len(shard.items))


def concatenate(first: Arrays, second: Arrays) -> Arrays:
    """Put the arrays of consecutive items one after the other, along their first axis."""
    return {name: np.concatenate([array, second[name]]) for name, array in first.items()}
