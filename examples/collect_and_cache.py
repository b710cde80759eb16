"""Results in the program: `execute_and_collect`, a limit, keyed streams, and a cached stream."""

from tidemark.common import Types
from tidemark.datastream import StreamExecutionEnvironment


def main():
    """Four small jobs."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_collection([1, 2, 3, 4], type_info=Types.INT())

    print(numbers.map(lambda number: number * number).execute_and_collect(limit=3))

    with numbers.key_by(lambda number: number % 2).execute_and_collect() as pairs:
        print(list(pairs))

    # The second job reads what the first one computed.
    cached = numbers.map(lambda number: number + 100, output_type=Types.INT()).cache()
    cached.print("first")
    env.execute()
    cached.filter(lambda number: number > 102).print("second")
    env.execute()
    cached.invalidate()
    env.close()


if __name__ == "__main__":
    main()
