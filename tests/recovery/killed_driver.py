"""A program to be killed: counts numbers into files, `python killed_driver.py DIRECTORY BACKEND [CHECKPOINT]`.

While there is a file DIRECTORY/hold it does not come to its end; with a file DIRECTORY/splits the numbers come from
splits instead of a source function, and with a file DIRECTORY/uncovered there comes no checkpoint.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from tidemark import (
    BucketAssigner,
    CheckpointedFunction,
    CheckpointListener,
    Configuration,
    EmbeddedRocksDBStateBackend,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    HashMapStateBackend,
    KeyedProcessFunction,
    ListStateDescriptor,
    SourceFunction,
    Split,
    SplitReader,
    SplitSource,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)

TOTAL = 1500


class Numbers(SourceFunction, CheckpointedFunction, CheckpointListener):
    def __init__(self, directory):
        self.directory = directory

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.state = store.get_list_state(ListStateDescriptor("offset", Types.LONG()))
        self.offset = next(iter(self.state.get()), 0)
        self.told = threading.Event()
        self.cancelled = False

    def snapshot_state(self, context):
        self.state.update([self.offset])

    def notify_checkpoint_complete(self, checkpoint_id):
        print("complete", checkpoint_id, flush=True)
        self.told.set()

    def cancel(self):
        self.cancelled = True
        self.told.set()

    def run(self, ctx):
        while self.offset < TOTAL and not self.cancelled:
            if self.offset == TOTAL - 60 and Path(self.directory, "hold").exists():
                time.sleep(0.01)
                continue
            with ctx.get_checkpoint_lock():
                ctx.collect(self.offset)
                self.offset += 1
            if self.offset % 60 == 0:
                self.told.wait()
                self.told.clear()


class HalfReader(SplitReader):
    """Every second number, a few in each epoch, and nothing every second time it is asked."""

    def __init__(self, first, directory):
        self.next, self.given, self.directory = first, False, directory

    def read(self, max_records, timeout_ms):
        if self.next >= TOTAL:
            return None
        if self.given or (self.next >= TOTAL - 60 and Path(self.directory, "hold").exists()):
            self.given = False
            return []
        numbers = list(range(self.next, TOTAL, 2))[:10]
        self.next, self.given = numbers[-1] + 2, True
        return numbers

    def position(self):
        return self.next


class Halves(SplitSource):
    bounded = True

    def __init__(self, directory):
        self.directory = directory

    def enumerate(self):
        return [Split("even", 0), Split("odd", 1)]

    def open(self, split, position):
        return HalfReader(split.data if position is None else position, self.directory)

    def notify_checkpoint_complete(self, checkpoint_id, positions):
        print("complete", checkpoint_id, flush=True)


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.count.value()}"


def main(directory, backend, checkpoint=None):
    settings = {"execution.target": "local", "state.checkpoints.dir": f"{directory}/checkpoints"}
    settings["state.backend.incremental"] = str(backend != "heap").lower()
    if checkpoint is not None:
        settings["execution.savepoint.path"] = checkpoint
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    env.set_state_backend(
        EmbeddedRocksDBStateBackend(True) if backend == "rocksdb" else HashMapStateBackend()
    )
    env.enable_checkpointing(10 if not Path(directory, "uncovered").exists() else 3_600_000)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    if Path(directory, "splits").exists():
        numbers = env.from_source(
            Halves(directory), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
        )
    else:
        numbers = env.add_source(Numbers(directory), type_info=Types.LONG())
    numbers.uid("numbers")
    counted = numbers.key_by(lambda n: n % 50, Types.LONG()).process(Count(), Types.STRING()).uid("count")
    sink = FileSink.for_row_format(f"{directory}/out", Encoder.simple_string_encoder())
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    counted.sink_to(sink.build()).uid("files")
    env.execute()
    print("finished", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
