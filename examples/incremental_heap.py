"""Checkpoints of a heap that changes little: each one writes what changed, and the last one has everything."""

import tempfile
import threading
from pathlib import Path

from tidemark.common import Configuration, Types
from tidemark.datastream import KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from tidemark.datastream.functions import CheckpointListener
from tidemark.datastream.state import ValueStateDescriptor

PAYMENT = Types.TUPLE([Types.LONG(), Types.LONG()])


class Payments(SourceFunction, CheckpointListener):
    """A payment for each of 20,000 accounts, then for account 7 alone, again and again."""

    completed = 0

    def run(self, ctx):
        """Let a few checkpoints complete between any two of the steps."""
        self.stopped = threading.Event()
        with ctx.get_checkpoint_lock():
            for account in range(20_000):
                ctx.collect((account, 1))
        for _ in range(3):
            enough = self.completed + 3
            while self.completed < enough and not self.stopped.wait(0.01):
                pass
            with ctx.get_checkpoint_lock():
                ctx.collect((7, 100))
        self.stopped.wait()

    def notify_checkpoint_complete(self, checkpoint_id):
        """Count."""
        self.completed += 1

    def cancel(self):
        """Stop waiting."""
        self.stopped.set()


class Balance(KeyedProcessFunction):
    """Adds up payments per account."""

    def open(self, runtime_context):
        """Register the state."""
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))

    def process_element(self, value, ctx):
        """Tell the balance of account 7."""
        self.balance.update((self.balance.value() or 0) + value[1])
        if value[0] == 7:
            yield self.balance.value()


def environment(folder, parallelism, **settings):
    """Heap state in incremental checkpoints, which stay when the job is cancelled."""
    configuration = Configuration()
    for key, value in {
        "state.backend": "hashmap",
        "state.checkpoints.dir": f"file://{folder}",
        "state.backend.incremental": "true",
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        **settings,
    }.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(parallelism)


def main():
    """Run, look at the files, go on with another parallelism."""
    folder = tempfile.mkdtemp()
    env = environment(folder, 1)
    env.enable_checkpointing(50)
    payments = env.add_source(Payments(), "payments", PAYMENT).uid("payments")
    balances = payments.key_by(lambda p: p[0], Types.LONG()).process(Balance(), Types.LONG()).uid("balances")
    with balances.execute_and_collect() as results:
        print("account 7:", [next(results) for _ in range(4)])
        job = results.get_job_client()
        # The state as it is now is in the second checkpoint that completes from now on.
        seen = job.get_progress()["checkpoints"]
        while job.get_progress()["checkpoints"] < seen + 2:
            threading.Event().wait(0.02)
        job.cancel().result()

    [checkpoint] = Path(folder).glob("*/chk-*")
    sizes = sorted(path.stat().st_size for path in checkpoint.parent.glob("shared/*"))
    small = [size for size in sizes if size < sizes[-1] / 10]
    print("a small file for each of the three payments to account 7:", len(small) >= 3)

    env = environment(folder, 3, **{"execution.state-recovery.path": str(checkpoint)})
    again = env.from_collection([(7, 0)], PAYMENT).uid("more")
    again.key_by(lambda p: p[0], Types.LONG()).process(Balance(), Types.LONG()).uid("balances").print()
    env.execute()


if __name__ == "__main__":
    main()
