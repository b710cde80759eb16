"""A dashboard over the state of a running job: bars that are drawn anew until the day's orders are in.

Nothing is written anywhere for it: the client asks the job's slots for the keys it wants to show.
"""

import sys
import threading

from tidemark.common import Configuration, Types
from tidemark.datastream import (
    KeyedProcessFunction,
    RuntimeContext,
    SourceFunction,
    StreamExecutionEnvironment,
)
from tidemark.datastream.state import ValueStateDescriptor
from tidemark.jobs import find_job
from tidemark.queryablestate import QueryableStateClient

CITIES = ["Lima", "Oslo", "Pune"]
ORDERS = [(CITIES[n % 5 % 3], 5 + n % 7) for n in range(300)]
TAKEN = ValueStateDescriptor("taken", Types.LONG())
TAKEN.set_queryable("taken")


class Orders(SourceFunction):
    def run(self, ctx):
        self.closed = threading.Event()
        for order in ORDERS:
            ctx.collect(order)
        self.closed.wait()

    def cancel(self):
        self.closed.set()


class Taken(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.taken = runtime_context.get_state(TAKEN)

    def process_element(self, order, ctx: "KeyedProcessFunction.Context"):
        self.taken.update((self.taken.value() or 0) + order[1])


def drawn(taken, most):
    return "\n".join(f"{city:<6}{'#' * (40 * amount // most):<41}{amount}" for city, amount in taken.items())


def main():
    configuration = Configuration().set_string("queryable-state.enable", "true")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    orders = env.add_source(Orders(), type_info=Types.TUPLE([Types.STRING(), Types.LONG()]))
    orders.key_by(lambda order: order[0], Types.STRING()).process(Taken()).uid("taken").print()
    job = env.execute_async("queryable dashboard")
    job_id = str(job.get_job_id())
    expected = sum(amount for _city, amount in ORDERS)
    with QueryableStateClient("localhost", find_job(job_id).query_port) as client:
        taken = {}
        while sum(taken.values()) < expected:
            states = client.get_kv_states(job_id, "taken", CITIES, Types.STRING(), TAKEN).result()
            taken = {city: state.value() if state else 0 for city, state in zip(CITIES, states, strict=True)}
            if sys.stdout.isatty():
                print("\033[H\033[2J" + drawn(taken, expected))
    print(drawn(taken, expected))
    job.cancel().result()


if __name__ == "__main__":
    main()
