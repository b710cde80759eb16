"""A delta iteration: vertices take the smallest number among their neighbours until nothing changes."""

from tidemark.common import Types
from tidemark.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from tidemark.datastream.functions import DeltaFunction

EDGES = [(1, 2), (2, 3), (4, 5), (6, 7), (7, 8), (8, 6)]


class SmallestNeighbour(DeltaFunction):
    """An element of the solution set is (vertex, component, neighbours); work is (vertex, candidate)."""

    def update(self, element, work):
        """Take the smallest candidate, and offer it to the neighbours."""
        vertex, component, neighbours = element
        best = min(candidate for _, candidate in work)
        if best >= component:
            return None, None
        return (vertex, best, neighbours), [(neighbour, best) for neighbour in neighbours]


def main():
    """Every vertex begins as a component of its own."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(2)
    neighbours = {}
    for one, other in EDGES:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    vertex = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LIST(Types.LONG())])
    candidate = Types.TUPLE([Types.LONG(), Types.LONG()])

    vertices = env.from_collection([(v, v, near) for v, near in neighbours.items()], vertex)
    candidates = env.from_collection([(v, w) for v, near in neighbours.items() for w in near], candidate)
    components = vertices.iterate_delta(
        candidates,
        max_iterations=100,
        function=SmallestNeighbour(),
        solution_key=lambda element: element[0],
        workset_key=lambda work: work[0],
        key_type=Types.LONG(),
    )
    with components.execute_and_collect() as results:
        for number, component, _ in sorted(results):
            print(f"{number} is in component {component}")


if __name__ == "__main__":
    main()
