"""A savepoint as Spark data: run a job, look at its state with SQL, correct it, let the job go on."""

import argparse
import tempfile
import threading

from tidemark.common import Configuration, Types
from tidemark.datastream import KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor
from tidemark.state_processor import SavepointReader, SavepointWriter

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])


class Payments(SourceFunction):
    """A few payments, then silence until the job is stopped."""

    def run(self, ctx):
        """Emit and wait."""
        self.stopped = threading.Event()
        for payment in [("ann", 10), ("bob", 20), ("ann", 5), ("eve", 1)]:
            ctx.collect(payment)
        self.stopped.wait()

    def cancel(self):
        """Stop waiting."""
        self.stopped.set()


class Balance(KeyedProcessFunction):
    """Adds up payments per name."""

    def open(self, runtime_context):
        """Register the state; its type is what gives the DataFrame its columns."""
        self.balance = runtime_context.get_state(ValueStateDescriptor("balance", Types.LONG()))

    def process_element(self, value, ctx):
        """Add."""
        self.balance.update((self.balance.value() or 0) + value[1])
        yield value[0], self.balance.value()


def job(source):
    """The program, whatever feeds it."""
    return (
        source.uid("payments").key_by(lambda p: p[0], Types.STRING()).process(Balance(), PAIR).uid("balance")
    )


def environment(savepoint=None):
    """An environment with two subtasks, started from a savepoint if there is one."""
    configuration = Configuration()
    if savepoint is not None:
        configuration.set_string("execution.state-recovery.path", savepoint)
    return StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)


def main(directory):
    """Run, look, correct, go on."""
    env = environment()
    with job(env.add_source(Payments(), "payments", PAIR)).execute_and_collect() as balances:
        for _ in range(4):
            next(balances)
        before = balances.get_job_client().trigger_savepoint(directory).result()

    reader = SavepointReader.read(env, before)
    frame = reader.read_dataframe("balance", "balance")
    frame.createOrReplaceTempView("balances")
    spark = frame.sparkSession
    print(
        "before:", [tuple(row) for row in spark.sql("select key, value from balances order by key").collect()]
    )

    corrected = spark.sql(
        "select key, if(key = 'bob', value + 100, value) as value from balances where key <> 'eve'"
    )
    writer = SavepointWriter.from_existing_savepoint(env, before).write_state("balance", "balance", corrected)
    after = writer.write(f"{directory}/corrected")

    more = environment(after).from_collection([("ann", 1), ("bob", 1), ("eve", 1)], PAIR)
    with job(more).execute_and_collect() as balances:
        print("after:", sorted(balances))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--directory", default=None, help="Where savepoints go; a temporary one by default.")
    chosen = parser.parse_args().directory
    if chosen is not None:
        main(chosen)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(folder)
