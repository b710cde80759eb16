"""`partition_custom`: the key says which of three subtasks gets an element."""

from tidemark.common import Types
from tidemark.datastream import MapFunction, Partitioner, RuntimeContext, StreamExecutionEnvironment


class ByRange(Partitioner):
    """Small keys to the first subtask, large ones to the last."""

    def partition(self, key: int, num_partitions: int) -> int:
        """Ten keys each."""
        return min(key // 10, num_partitions - 1)


class Place(MapFunction):
    """Adds the index of the subtask."""

    def open(self, runtime_context: RuntimeContext):
        """Ask where we are."""
        self.index = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        """Subtask and value."""
        return self.index, value


def main():
    """Collected and sorted, because subtasks run side by side."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(3)

    placed = (
        env.from_collection([5, 12, 31, 8, 25, 19], type_info=Types.INT())
        .partition_custom(ByRange(), lambda value: value)
        .map(Place())
    )
    with placed.execute_and_collect() as results:
        for result in sorted(results):
            print(result)


if __name__ == "__main__":
    main()
