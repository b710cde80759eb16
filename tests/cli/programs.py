"""Programs the tests run: text with `{names}` to be replaced."""

from __future__ import annotations

COUNTING = '''
import sys
import time
from dataclasses import dataclass

from tidemark import *

LIMIT = int(sys.argv[1]) if len(sys.argv) > 1 else 10**9


class Numbers(SourceFunction, CheckpointedFunction):
    """Counts up to LIMIT; where it stands is operator state."""

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.offset = store.get_list_state(ListStateDescriptor("offset", {offset_type}))
        self.next = next(iter(self.offset.get()), 0)

    def snapshot_state(self, context):
        self.offset.update([self.next])

    def run(self, context):
        self.running = True
        while self.running and self.next < LIMIT:
            with context.get_checkpoint_lock():
                context.collect(self.next % 10)
                self.next += 1
            if self.next % 50 == 0:
                time.sleep(0.005)

    def cancel(self):
        self.running = False


class Nowhere(SinkFunction):
    def invoke(self, value, context):
        pass


{classes}


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = {descriptor}
        {declared}
        self.count = runtime_context.get_state(descriptor)
        {more_states}

    def process_element(self, value, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{value},{count}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment({configuration})
    env.enable_checkpointing(100)
    numbers = env.add_source(Numbers(), type_info=Types.LONG()).uid("numbers")
    counts = numbers.key_by(lambda value: value, key_type={key_type}).process(Count(), Types.STRING())
    counts.uid("{uid}").{sink}.uid("out")
    {execute}("counting")
    {afterwards}
'''

NAMES = {
    "offset_type": "Types.LONG()",
    "classes": "",
    "descriptor": 'ValueStateDescriptor("count", Types.LONG())',
    "declared": 'descriptor.set_queryable("counts")',
    "more_states": "",
    "configuration": "",
    "key_type": "Types.LONG()",
    "uid": "count",
    "sink": "print()",
    "execute": "env.execute",
    "afterwards": "",
}
"""What stands for each name unless a test says otherwise."""

SETTINGS = """
import json
import sys

from tidemark import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
configuration = env.get_configuration()
print(json.dumps({
    "argv": sys.argv,
    "name": __name__,
    "main": sys.modules["__main__"].__dict__ is globals(),
    "parallelism": env.get_parallelism(),
    **{key: configuration.get_string(key, None) for key in (
        "execution.target", "execution.savepoint.path", "state.backend", "spark.app.name",
    )},
}))
"""

FAILING_JOB = """
from tidemark import StreamExecutionEnvironment


def fail(value):
    raise ValueError("boom")


env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1]).map(fail).print()
{run}
"""
