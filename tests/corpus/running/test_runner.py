from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import distributed
import numpy as np
import pytest
import torch

import prosect
from corpus.sentences import sentences
from prosect import corpus
from prosect.corpus.experiments.importance import TermShares
from prosect.corpus.running import runner
from prosect.corpus.statistics.moments import Arrays
from support.families import random_lens

TEXTS = sentences(120)
BATCH = 3


@pytest.fixture(scope="module")
def lens() -> prosect.Lens:
    return random_lens("bert")


@pytest.fixture(scope="module")
def expected(lens: prosect.Lens) -> Arrays:
    return measured(lens).arrays


def measured(
    model: prosect.Lens | str, task: Any = None, texts: Sequence[str] = TEXTS, **options: Any
) -> runner.Outcome:
    given = {"batch": BATCH, "shard": BATCH, "progress": False, **options}
    return runner.run(task or TermShares(special=True), model, texts, **given)


def assert_same(found: Arrays, expected: Arrays) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        if array.dtype.kind == "f":
            np.testing.assert_allclose(found[name], array, rtol=1e-10, atol=1e-10)
        else:
            np.testing.assert_array_equal(found[name], array)


def shards(folder: Path) -> dict[Path, int]:
    """The finished shards and when they were written."""
    return {file: file.stat().st_mtime_ns for file in sorted(folder.rglob("*.npz"))}


class Counting(TermShares):
    """Counts the batches it measures; its results are those of TermShares."""

    batches = 0

    def measure(self, lens: prosect.Lens, items: Sequence[str]) -> Arrays:
        Counting.batches += 1
        return super().measure(lens, items)


class Interrupted(TermShares):
    """Stopped by the user in the fifth batch."""

    left = 4

    def measure(self, lens: prosect.Lens, items: Sequence[str]) -> Arrays:
        if Interrupted.left == 0:
            raise KeyboardInterrupt
        Interrupted.left -= 1
        return super().measure(lens, items)


# --- the cut ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shard", [1, 7, 30, 1000])
def test_results_do_not_depend_on_the_shards(
    lens: prosect.Lens, expected: Arrays, shard: int
) -> None:
    assert_same(measured(lens, shard=shard).arrays, expected)


@pytest.mark.parametrize("batch", [1, 16])
def test_results_do_not_depend_on_the_batches(
    lens: prosect.Lens, expected: Arrays, batch: int
) -> None:
    assert_same(measured(lens, batch=batch).arrays, expected)


def test_concatenation_keeps_the_order(lens: prosect.Lens) -> None:
    class Lengths:
        name = "lengths"

        def measure(self, lens: prosect.Lens, items: Sequence[str]) -> Arrays:
            return {"length": np.array([len(text) for text in items])}

        merge = staticmethod(runner.concatenate)

    with ThreadPoolExecutor(3) as executor:
        for options in ({}, {"executor": executor}):
            found = measured(lens, Lengths(), **options).arrays["length"]
            assert found.tolist() == [len(text) for text in TEXTS]


def test_texts_that_do_not_fit_are_counted_and_the_rest_is_analysed(lens: prosect.Lens) -> None:
    texts = [
        "so " * 80,
        *TEXTS[:3],
        "\u200b" if not lens.fits("\u200b") else "so " * 90,
        *TEXTS[3:5],
    ]
    found = measured(lens, texts=texts, batch=1)
    assert (found.items, found.skipped) == (5, 2)
    assert_same(found.arrays, measured(lens, texts=TEXTS[:5], batch=1).arrays)
    with pytest.raises(prosect.ProsectError, match="None of the 2 texts fits bert"):
        measured(lens, texts=["so " * 80] * 2)


def test_the_bar_counts_every_text(lens: prosect.Lens, capfd: pytest.CaptureFixture[str]) -> None:
    measured(lens, progress=True)
    assert re.search(r"importance: 100%.*120/120 .*text/s", capfd.readouterr().err)


# --- workers ------------------------------------------------------------------------------------


@contextmanager
def processes(count: int = 2) -> Iterator[Executor]:
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        yield pool


def test_threads_give_the_same(lens: prosect.Lens, expected: Arrays) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert_same(measured(lens, executor=executor).arrays, expected)


def test_processes_give_the_same(lens: prosect.Lens, expected: Arrays, tmp_path: Path) -> None:
    with processes() as executor:
        assert_same(measured(lens, executor=executor).arrays, expected)
        assert_same(measured(lens, executor=executor, checkpoint=tmp_path).arrays, expected)


def test_a_dead_worker_of_a_pool_is_one_sentence_and_work_is_kept(
    lens: prosect.Lens, expected: Arrays, tmp_path: Path
) -> None:
    with processes(1) as executor:
        pid = executor.submit(os.getpid).result()
        killer = Thread(target=kill_when_shards, args=(pid, tmp_path, 2))
        killer.start()
        with pytest.raises(
            prosect.ProsectError, match="worker of the executor died; the checkpoint holds"
        ):
            measured(lens, executor=executor, checkpoint=tmp_path)
        killer.join()
    kept = shards(tmp_path)
    assert 2 <= len(kept) < len(TEXTS) // BATCH
    assert_same(measured(lens, checkpoint=tmp_path).arrays, expected)
    assert kept.items() <= shards(tmp_path).items()


def kill_when_shards(pid: int, folder: Path, count: int) -> None:
    while len(shards(folder)) < count:
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)


def test_a_cluster_gives_the_same_though_a_worker_is_killed(
    lens: prosect.Lens, expected: Arrays, tmp_path: Path
) -> None:
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        before = set(client.run(os.getpid).values())
        victim = min(before)
        killer = Thread(target=kill_when_shards, args=(victim, tmp_path, 2))
        killer.start()
        found = measured(lens, executor=client.get_executor(), checkpoint=tmp_path)
        killer.join()
        client.wait_for_workers(2)
        after = set(client.run(os.getpid).values())
    assert victim not in after
    assert len(shards(tmp_path)) == len(TEXTS) // BATCH
    assert_same(found.arrays, expected)


def test_each_process_opens_the_model_once(lens: prosect.Lens, monkeypatch: Any) -> None:
    from prosect.corpus.running import workers

    mark = workers.fingerprint(lens)
    reference = workers.ModelReference.of(lens, mark, None, None)
    monkeypatch.setattr(workers, "_local", {})  # as in another process
    monkeypatch.setattr(workers, "_loaded", {})
    first = reference.lens()
    assert first is not lens
    assert first is reference.lens()
    assert workers.fingerprint(first) == mark


def test_a_worker_with_another_model_is_refused(
    lens: prosect.Lens, monkeypatch: Any, tmp_path: Path
) -> None:
    from prosect.corpus.running import workers

    folder = tmp_path / "model"
    lens.model.save_pretrained(folder)
    lens.tokenizer.save_pretrained(folder)
    reference = workers.ModelReference("another", str(folder), None)
    with pytest.raises(
        prosect.ProsectError, match=r"loaded a different model from .*: give all workers"
    ):
        reference.lens()
    gone = workers.ModelReference("another", None, str(tmp_path / "gone.pt"))
    with pytest.raises(prosect.ProsectError, match=r"cannot read .*: give a checkpoint folder"):
        gone.lens()


def test_the_fingerprint_changes_with_weights_and_tokenizer_and_with_nothing_else() -> None:
    from prosect.corpus.running.workers import fingerprint

    lens = random_lens("bert")
    mark = fingerprint(lens)
    lens.trace("A text in between.")
    lens.tokenizer(["one", "one two"], padding=True, truncation=True, max_length=7)
    assert fingerprint(lens) == mark
    assert fingerprint(random_lens("bert", torch.float32)) != mark
    with torch.no_grad():
        next(lens.model.parameters())[0, 0] += 1.0
    changed = fingerprint(lens)
    assert changed != mark
    lens.tokenizer.add_tokens(["riverbank"])
    assert fingerprint(lens) != changed


def test_the_fingerprint_knows_settings_that_are_no_weights() -> None:
    from prosect.corpus.running.workers import fingerprint

    lens = random_lens("bert")
    mark = fingerprint(lens)
    lens.anatomy.base.encoder.layer[0].output.LayerNorm.eps = 0.5
    changed = fingerprint(lens)
    assert changed != mark
    lens.tokenizer.mask_token = "[UNK]"
    assert fingerprint(lens) != changed
    lens.tokenizer.mask_token = "[MASK]"  # the tokenizer is shared by tests


def test_a_model_with_hooks_is_refused_where_its_results_would_be_kept(tmp_path: Path) -> None:
    lens = random_lens("bert")
    ids = lens.tokenizer("A bank.", return_tensors="pt")
    lens.model(**ids, output_attentions=True, output_hidden_states=True)  # leaves hooks of its own
    measured(lens, checkpoint=tmp_path)
    handle = lens.anatomy.blocks[1].module.register_forward_hook(lambda *_: None)
    assert measured(lens).items == len(TEXTS)
    with ThreadPoolExecutor(1) as executor:
        for kept in ({"checkpoint": tmp_path}, {"executor": executor}):
            with pytest.raises(prosect.ProsectError, match="has a hook or a replaced forward"):
                measured(lens, **kept)
    handle.remove()
    measured(lens, checkpoint=tmp_path)


def test_a_forked_process_does_not_take_the_model_as_it_was(monkeypatch: Any) -> None:
    from prosect.corpus.running import workers

    lens = random_lens("bert")
    reference = workers.ModelReference.of(lens, workers.fingerprint(lens), None, None)
    assert reference.lens() is lens
    monkeypatch.setattr(workers.os, "getpid", lambda: -1)  # as in a process that was forked
    monkeypatch.setattr(workers, "_loaded", {})
    assert reference.lens() is not lens


def test_a_lens_that_cannot_be_passed_on_is_one_sentence(tmp_path: Path) -> None:
    lens = random_lens("bert")
    lens.model.note = lambda: None
    one_sentence = pytest.raises(prosect.ProsectError, match="cannot be passed to other processes")
    with ThreadPoolExecutor(1) as executor, one_sentence:
        measured(lens, executor=executor, checkpoint=tmp_path)
    assert not list(tmp_path.glob("*.part"))
    damaged = tmp_path / "lens.pt"
    damaged.write_bytes(b"not a lens")
    from prosect.corpus.running.workers import ModelReference

    with pytest.raises(prosect.ProsectError, match="is damaged: delete it"):
        ModelReference("another", None, str(damaged)).lens()


def test_an_executor_that_was_shut_down_is_one_sentence(lens: prosect.Lens) -> None:
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(prosect.ProsectError, match="executor accepts no work"):
        measured(lens, executor=executor)


# --- checkpoints --------------------------------------------------------------------------------


def test_a_run_that_was_interrupted_goes_on(
    lens: prosect.Lens, expected: Arrays, tmp_path: Path
) -> None:
    Interrupted.left = 4
    Interrupted.__qualname__ = Interrupted.__name__ = "TermShares"
    with pytest.raises(KeyboardInterrupt):
        measured(lens, Interrupted(True), checkpoint=tmp_path)
    kept = shards(tmp_path)
    assert len(kept) == 4
    Interrupted.left = -1
    assert_same(measured(lens, Interrupted(True), checkpoint=tmp_path).arrays, expected)
    assert kept.items() <= shards(tmp_path).items()
    assert Interrupted.left == -1 - (len(TEXTS) // BATCH - 4)


RUN = """
import sys, torch
sys.path.insert(0, sys.argv[2])
from corpus.running.test_runner import TEXTS, measured
from support.families import random_lens
torch.set_num_threads(1)
measured(random_lens("bert"), checkpoint=sys.argv[1])
"""


def test_a_run_that_was_killed_goes_on(
    lens: prosect.Lens, expected: Arrays, tmp_path: Path
) -> None:
    tests = Path(__file__).parents[2]
    process = subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path), str(tests)])
    kill_when_shards(process.pid, tmp_path, 3)
    assert process.wait() == -signal.SIGKILL
    kept = shards(tmp_path)
    assert 3 <= len(kept) < len(TEXTS) // BATCH
    assert_same(measured(lens, checkpoint=tmp_path).arrays, expected)
    assert kept.items() <= shards(tmp_path).items()


def test_finished_shards_are_not_measured_again_and_stale_ones_not_used(
    lens: prosect.Lens, tmp_path: Path
) -> None:
    def batches(model: prosect.Lens = lens, special: bool = True, **options: Any) -> int:
        Counting.batches = 0
        measured(model, Counting(special), checkpoint=tmp_path, **options)
        return Counting.batches

    assert batches() == 40
    assert batches() == 0
    assert batches(special=False) == 40
    assert batches(random_lens("bert", seed=1)) == 40
    assert batches(batch=2, shard=2) == 60
    assert batches(texts=[*TEXTS[:-1], "Another last text."]) == 1
    assert batches() == 0


@pytest.mark.parametrize("content", [b"", b"not a shard", None])
def test_a_damaged_shard_is_measured_again(
    lens: prosect.Lens, expected: Arrays, tmp_path: Path, content: bytes | None
) -> None:
    measured(lens, checkpoint=tmp_path)
    file = next(iter(shards(tmp_path)))
    file.write_bytes(file.read_bytes()[:-40] if content is None else content)
    assert_same(measured(lens, checkpoint=tmp_path).arrays, expected)


def test_a_shard_under_another_name_is_not_taken_for_it(
    lens: prosect.Lens, expected: Arrays, tmp_path: Path
) -> None:
    measured(lens, checkpoint=tmp_path)
    first, second, *_ = shards(tmp_path)
    first.write_bytes(second.read_bytes())
    np.savez(second, other=np.zeros(1))
    assert_same(measured(lens, checkpoint=tmp_path).arrays, expected)


def test_a_checkpoint_that_cannot_be_written_is_one_sentence(
    lens: prosect.Lens, tmp_path: Path
) -> None:
    measured(lens, checkpoint=tmp_path)
    for file in shards(tmp_path):
        file.unlink()
        file.mkdir()
    with pytest.raises(prosect.ProsectError, match="Cannot write finished shards"):
        measured(lens, checkpoint=tmp_path)
    for checkpoint in (3, True, ""):
        with pytest.raises(TypeError, match="must be the path of a folder"):
            measured(lens, checkpoint=checkpoint)


def test_nothing_but_whole_shards_is_left_behind(lens: prosect.Lens, tmp_path: Path) -> None:
    measured(lens, checkpoint=tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".npz"}


# --- what is refused ----------------------------------------------------------------------------


def test_what_cannot_be_is_refused(lens: prosect.Lens, tmp_path: Path) -> None:
    with pytest.raises(prosect.ProsectError, match="batch must be at least 1, got 0"):
        corpus.importance(lens, TEXTS, batch=0)
    with pytest.raises(prosect.ProsectError, match=r"shard must be an integer, got 2\.5"):
        corpus.importance(lens, TEXTS, shard=2.5)
    measured(lens, batch=np.int64(7))
    with pytest.raises(TypeError, match=r"Lens or a name .*, got NoneType"):
        corpus.importance(None, TEXTS)
    with pytest.raises(TypeError, match="must be a string, got 1"):
        corpus.importance({1: lens}, TEXTS)
    with pytest.raises(TypeError, match=r"client\.get_executor\(\)\), got str"):
        corpus.importance(lens, TEXTS, executor="processes")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(prosect.ProsectError, match="Cannot write finished shards to"):
        corpus.importance(lens, TEXTS, checkpoint=file, progress=False)
    with pytest.raises(TypeError, match=r"must be a Lens or a name for .*, got int"):
        corpus.importance({"one": 1}, TEXTS)
    with pytest.raises(prosect.ProsectError, match="Two models have the name 'bert'"):
        corpus.importance([lens, random_lens("bert")], TEXTS)
    with pytest.raises(prosect.ProsectError, match="must be at least one model"):
        corpus.importance({}, TEXTS)


def test_a_text_that_cannot_be_analysed_is_named(lens: prosect.Lens) -> None:
    broken = random_lens("bert", seed=3)
    with torch.no_grad():
        broken.anatomy.words.weight[broken.tokenizer.mask_token_id] = torch.nan
    texts = [*TEXTS[:5], "A [MASK] fell.", *TEXTS[5:9]]
    with pytest.raises(prosect.ProsectError, match=r"In texts 3 to 5: .*NaN"):
        measured(broken, texts=texts)
