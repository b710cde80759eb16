"""A bulk iteration: ranks flow along links, round after round, until no rank changes much."""

from tidemark.common import Types
from tidemark.datastream import FlatMapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from tidemark.datastream.functions import KeyedProcessFunction

LINKS = {"a": ["b", "c"], "b": ["c"], "c": ["a"], "d": ["c"]}
DAMPING = 0.85


class Spread(FlatMapFunction):
    """A page sends its rank along its links, and itself with its old rank."""

    def flat_map(self, value):
        page, links, rank, _ = value
        yield page, links, rank, 0.0
        for link in links:
            yield link, [], 0.0, rank / len(links)


class Gather(KeyedProcessFunction):
    """Adds up what comes to a page; the end of the round is when the timer fires."""

    def open(self, runtime_context):
        self.parts = []

    def process_element(self, value, ctx):
        self.parts.append(value)
        ctx.timer_service().register_event_time_timer(0)

    def on_timer(self, timestamp, ctx):
        parts, self.parts = self.parts, []
        links = next(part[1] for part in parts if part[3] == 0.0)
        old = sum(part[2] for part in parts)
        rank = (1 - DAMPING) / len(LINKS) + DAMPING * sum(part[3] for part in parts)
        yield ctx.get_current_key(), links, rank, abs(rank - old)


def main():
    """The criterion has elements as long as some rank has moved."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)
    kind = Types.TUPLE([Types.STRING(), Types.LIST(Types.STRING()), Types.DOUBLE(), Types.DOUBLE()])
    pages = env.from_collection([(page, links, 1 / len(LINKS), 0.0) for page, links in LINKS.items()], kind)

    loop = pages.iterate(max_iterations=100)
    spread = loop.flat_map(Spread(), kind)
    ranks = spread.key_by(lambda part: part[0], Types.STRING()).process(Gather(), kind)
    moving = ranks.filter(lambda page: page[3] > 0.0001)
    result = loop.close_with(ranks, moving)

    with result.execute_and_collect() as found:
        for page, _, rank, _ in sorted(found):
            print(f"{page} {rank:.3f}")


if __name__ == "__main__":
    main()
