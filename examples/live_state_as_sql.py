"""SQL over the state of a job that is running."""

import threading
import time

from pyspark.sql import SparkSession

from tidemark.common import Configuration, Types
from tidemark.datastream import KeyedProcessFunction, SourceFunction, StreamExecutionEnvironment
from tidemark.datastream.state import ValueStateDescriptor
from tidemark.state_processor import register


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
        """Register the state and publish it as "balances"."""
        descriptor = ValueStateDescriptor("balance", Types.LONG())
        descriptor.set_queryable("balances")
        self.balance = runtime_context.get_state(descriptor)

    def process_element(self, value, ctx):
        """Add."""
        self.balance.update((self.balance.value() or 0) + value[1])


def start():
    """A job in this process that serves queries; one on a cluster is read in the same way."""
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("queryable-state.enable", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    payments = env.add_source(Payments(), type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
    payments.key_by(lambda payment: payment[0], Types.STRING()).process(Balance()).print()
    return env.execute_async("payments")


def main():
    """Run a job, and ask it."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    job = start()

    balances = spark.read.format("tidemark").options(job=str(job.get_job_id()), state="balances").load()
    balances.createOrReplaceTempView("balances")
    while spark.sql("select sum(value) as total from balances").first().total != 36:
        time.sleep(0.1)  # the job has just started
    rich = spark.sql("select key, value from balances where value > 10 order by value desc").collect()
    print([tuple(row) for row in rich])

    job.cancel().result()


if __name__ == "__main__":
    main()
