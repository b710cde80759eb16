"""Broadcast state: pairs of shapes of one colour, found by rules that arrive as a stream of their own."""

from tidemark.common import Types
from tidemark.datastream import RuntimeContext, RuntimeExecutionMode, StreamExecutionEnvironment
from tidemark.datastream.functions import KeyedBroadcastProcessFunction
from tidemark.datastream.state import MapStateDescriptor

RULES = MapStateDescriptor("rules", Types.STRING(), Types.TUPLE([Types.STRING(), Types.STRING()]))
ITEM = Types.TUPLE([Types.STRING(), Types.STRING(), Types.INT()])
WAITING = MapStateDescriptor("waiting", Types.STRING(), Types.LIST(ITEM))


class MatchPairs(KeyedBroadcastProcessFunction):
    """Keyed by colour: an item of a rule's first shape waits for one of the second."""

    def __init__(self):
        """The state exists once the function is open."""
        self.waiting = None

    def open(self, runtime_context: RuntimeContext):
        """Rule name -> items that wait."""
        self.waiting = runtime_context.get_map_state(WAITING)

    def process_broadcast_element(self, value, ctx: "KeyedBroadcastProcessFunction.Context"):
        """A new rule, or an old one changed."""
        name, first, second = value
        ctx.get_broadcast_state(RULES).put(name, (first, second))

    def process_element(self, value, ctx: "KeyedBroadcastProcessFunction.ReadOnlyContext"):
        """Try every rule on the item."""
        shape = value[1]
        for name, (first, second) in sorted(ctx.get_broadcast_state(RULES).items()):
            waiting = list(self.waiting.get(name) or [])
            if shape == second and waiting:
                for item in waiting:
                    yield f"MATCH: {item} - {value}"
                waiting = []
            if shape == first:
                waiting.append(value)
            if waiting:
                self.waiting.put(name, waiting)
            else:
                self.waiting.remove(name)


def main():
    """Batch mode reads all rules before the first item."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)
    items = env.from_collection(
        [
            ("red", "square", 1),
            ("blue", "square", 2),
            ("red", "circle", 3),
            ("red", "square", 4),
            ("red", "square", 5),
            ("blue", "triangle", 6),
            ("red", "circle", 7),
        ],
        type_info=ITEM,
    )
    rules = env.from_collection([("a", "square", "circle"), ("b", "square", "square")])

    items.key_by(lambda item: item[0]).connect(rules.broadcast(RULES)).process(MatchPairs()).print()

    env.execute()


if __name__ == "__main__":
    main()
