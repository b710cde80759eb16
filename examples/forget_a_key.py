"""Somebody wants to be forgotten: erase one key from a running job and its checkpoints, with a proof."""

import tempfile
import threading
import time

from tidemark.common import Configuration, Types
from tidemark.datastream import KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor
from tidemark.state_processor import erase_from_job


class Payments(SourceFunction):
    """A few payments, then silence until the job is stopped."""

    def run(self, ctx):
        """Emit and wait."""
        self.stopped = threading.Event()
        for payment in [("ann", 10), ("bob", 20), ("ann", 5)]:
            ctx.collect(payment)
        self.stopped.wait()

    def cancel(self):
        """Stop waiting."""
        self.stopped.set()


class Balance(KeyedProcessFunction):
    """Adds up payments per name."""

    def open(self, runtime_context):
        """Register the state."""
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))

    def process_element(self, value, ctx):
        """Add."""
        self.balance.update((self.balance.value() or 0) + value[1])


def main():
    """Run a job, let it forget ann, show the proof."""
    folder = tempfile.mkdtemp()
    configuration = Configuration()
    configuration.set_string("state.checkpoints.dir", f"file://{folder}/checkpoints")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    env.enable_checkpointing(1_000)
    payments = env.add_source(Payments(), type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
    payments.key_by(lambda p: p[0], Types.STRING()).process(Balance()).uid("balances").print()
    job = env.execute_async("payments")
    while job.get_progress()["state_entries"] < 2:
        time.sleep(0.05)  # the job has just started

    proof = erase_from_job(str(job.get_job_id()), "ann", f"{folder}/proof.json")
    print(proof.facts["erased"], [each["rows_found"] for each in proof.facts["checkpoints"]], proof.complete)

    job.cancel().result()


if __name__ == "__main__":
    main()
