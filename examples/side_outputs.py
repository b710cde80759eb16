"""Side outputs both ways: `yield tag, value` and `ctx.output(tag, value)`."""

from tidemark.common import Types
from tidemark.datastream import OutputTag, ProcessFunction, StreamExecutionEnvironment

TEXTS = OutputTag("texts", Types.STRING())
ERRORS = OutputTag("errors", Types.ROW([Types.STRING(), Types.STRING()]))


class Sort(ProcessFunction):
    """Numbers go on, the rest leaves by the side."""

    def process_element(self, value, ctx: "ProcessFunction.Context"):
        """Decide by type."""
        if isinstance(value, int):
            yield value
        elif isinstance(value, str):
            yield TEXTS, value
        else:
            ctx.output(ERRORS, (type(value).__name__, str(value)))


def main():
    """Three sinks behind one operator."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)

    numbers = env.from_collection([1, "two", 3.0, 4, None, "six"]).process(Sort(), Types.LONG())
    numbers.print("numbers")
    numbers.get_side_output(TEXTS).map(str.upper, Types.STRING()).print("texts")
    numbers.get_side_output(ERRORS).print("errors")

    env.execute()


if __name__ == "__main__":
    main()
