"""Failures anywhere, at random, with the real threads: output files and counts stay exact."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.campaign import seeds
from tests.recovery.local_jobs import Count, Numbers, board, local_env, new_board

from tidemark import (
    BucketAssigner,
    CheckpointedFunction,
    CheckpointListener,
    EmbeddedRocksDBStateBackend,
    Encoder,
    FileSink,
    HashMapStateBackend,
    MapFunction,
    RestartStrategies,
    Types,
)
from tidemark.checkpoint.storage.filesystem import FileSystemStorage
from tidemark.errors import StorageError

BLOCKS, SIZE = 6, 20


class Chaos(MapFunction, CheckpointedFunction, CheckpointListener):
    """Asks before every step whether it should fail there."""

    def __init__(self, board_name):
        self.board_name = board_name

    def initialize_state(self, context):
        trouble(self.board_name, "initialize", 0.1)

    def open(self, runtime_context):
        trouble(self.board_name, "open", 0.1)

    def map(self, value):
        trouble(self.board_name, "map", 0.05)
        return value

    def snapshot_state(self, context):
        trouble(self.board_name, "snapshot", 0.1)

    def notify_checkpoint_complete(self, checkpoint_id):
        trouble(self.board_name, "notify", 0.1)


def trouble(name, place, probability):
    seen = board(name)
    with seen.changed:
        if seen.values["left"] and seen.values["rng"].random() < probability:
            seen.values["left"] -= 1
            seen.events.append(place)
            raise ArithmeticError(f"trouble in {place}")


@pytest.mark.parametrize("seed", seeds(6))
def test_trouble_anywhere_changes_nothing(tmp_path, seed, monkeypatch):
    seen = new_board()
    seen.values |= {"rng": random.Random(seed), "left": 12}
    write = FileSystemStorage.write

    def shaky_write(self, path, data):
        try:
            trouble(seen.name, "storage", 0.1)
        except ArithmeticError as exc:
            raise StorageError(str(exc)) from exc
        write(self, path, data)

    monkeypatch.setattr(FileSystemStorage, "write", shaky_write)
    backend = EmbeddedRocksDBStateBackend(True) if seed % 3 == 0 else HashMapStateBackend()
    settings = {"state.checkpoints.dir": str(tmp_path / "checkpoints")}
    settings["state.backend.incremental"] = str(seed % 3 == 1).lower()
    env = local_env(settings, 1 + seed % 3, backend)
    env.enable_checkpointing(10)
    config = env.get_checkpoint_config()
    config.set_tolerable_checkpoint_failure_number(seed % 2)
    config.set_max_concurrent_checkpoints(1 + seed // 2 % 2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(100, 1))
    numbers = env.add_source(Numbers(seen.name, BLOCKS, SIZE), type_info=Types.LONG())
    counted = (
        numbers.map(Chaos(seen.name), Types.LONG()).key_by(lambda n: n % 5, Types.LONG()).process(Count())
    )
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    counted.map(lambda pair: f"{pair[0]} {pair[1]}", Types.STRING()).sink_to(sink.build())
    env.execute()
    files = list(Path(tmp_path / "out").iterdir())
    assert not [path for path in files if path.name.startswith(".")]
    lines = sorted(line for path in files for line in path.read_text().splitlines())
    expected = BLOCKS * SIZE // 5
    assert lines == sorted(f"{key} {count}" for key in range(5) for count in range(1, expected + 1))
    assert not list((tmp_path / "checkpoints").rglob("chk-*"))
