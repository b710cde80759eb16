"""A loop in the graph: numbers go round until they are one, counting their steps (Collatz)."""

from tidemark.common import Types
from tidemark.datastream import StreamExecutionEnvironment


def step(value):
    """(start, current, steps) after one round."""
    start, current, steps = value
    return start, current // 2 if current % 2 == 0 else 3 * current + 1, steps + 1


def main():
    """The loop ends when it is empty."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    kind = Types.TUPLE([Types.LONG(), Types.LONG(), Types.INT()])

    loop = env.from_collection([(7, 7, 0), (6, 6, 0), (27, 27, 0)], type_info=kind).iterate()
    body = loop.map(step, output_type=kind)
    loop.close_with(body.filter(lambda value: value[1] != 1))

    with body.filter(lambda value: value[1] == 1).execute_and_collect() as results:
        for start, _, steps in sorted(results):
            print(f"{start} took {steps} steps")


if __name__ == "__main__":
    main()
