"""Word count in batch mode: one line per word, its final count."""

import argparse

from tidemark.common import Types, WatermarkStrategy
from tidemark.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from tidemark.datastream.connectors.file_system import FileSource, StreamFormat

LINES = [
    "the tide comes in and the tide goes out",
    "the moon pulls the sea",
    "and the sea follows the moon",
]


def split(line):
    """Words of a line."""
    yield from line.split()


def main(path=None):
    """Count the words of a file, or of a few built-in lines."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_parallelism(1)

    if path is None:
        lines = env.from_collection(LINES, type_info=Types.STRING())
    else:
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path)
        lines = env.from_source(
            source.process_static_file_set().build(), WatermarkStrategy.no_watermarks(), "files"
        )

    (
        lines.flat_map(split)
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0])
        .reduce(lambda left, right: (left[0], left[1] + right[1]))
        .print()
    )

    env.execute("word count")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", help="a text file or directory")
    main(parser.parse_known_args()[0].input)
