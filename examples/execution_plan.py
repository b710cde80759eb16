"""What a job will do, without running it."""

import json

from tidemark.common import Types
from tidemark.datastream import StreamExecutionEnvironment


def main():
    """One line per node."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    words = env.from_collection(["a", "b"], type_info=Types.STRING())
    words.rebalance().map(str.upper, Types.STRING()).name("upper").key_by(lambda word: word).reduce(
        lambda left, right: left
    ).print()

    for node in json.loads(env.get_execution_plan())["nodes"]:
        ships = [edge["ship_strategy"] for edge in node.get("predecessors", [])]
        print(node["pact"], "|", node["type"], "|", node["parallelism"], "|", ", ".join(ships))


if __name__ == "__main__":
    main()
