"""Union: several streams of one type become one; a stream united with itself comes twice."""

from tidemark.common import Types
from tidemark.datastream import StreamExecutionEnvironment


def main():
    """Running sums over three inputs."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    kind = Types.TUPLE([Types.STRING(), Types.INT()])
    left = env.from_collection([("a", 1), ("b", 2)], type_info=kind)
    right = env.from_collection([("a", 10)], type_info=kind)

    with left.union(right, left).key_by(lambda pair: pair[0]).sum(1).execute_and_collect() as sums:
        last = {}
        for key, total in sums:
            last[key] = max(total, last.get(key, 0))
    print(sorted(last.items()))


if __name__ == "__main__":
    main()
