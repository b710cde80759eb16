"""A program to be killed: counts a topic into files, `killed_driver.py DIRECTORY BOOTSTRAP TOPIC [CHECKPOINT]`."""

from __future__ import annotations

import sys

from tests.recovery.killed_driver import Count

from tidemark import (
    BucketAssigner,
    Configuration,
    Encoder,
    ExternalizedCheckpointRetention,
    FileSink,
    SimpleStringSchema,
    StreamExecutionEnvironment,
    Types,
    WatermarkStrategy,
)
from tidemark.datastream.connectors.kafka import KafkaSource


def main(directory, bootstrap, topic, checkpoint=None):
    settings = {"execution.target": "local", "state.checkpoints.dir": f"{directory}/checkpoints"}
    if checkpoint is not None:
        settings["execution.savepoint.path"] = checkpoint
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(2)
    env.enable_checkpointing(20)
    retention = ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION
    env.get_checkpoint_config().set_externalized_checkpoint_retention(retention)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(topic)
        .set_group_id(f"group-of-{topic}")
        .set_value_only_deserializer(SimpleStringSchema())
        .set_property("partition.discovery.interval.ms", "200")
        .build()
    )
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    counted = numbers.key_by(lambda n: int(n) % 50, Types.LONG()).process(Count(), Types.STRING())
    sink = FileSink.for_row_format(f"{directory}/out", Encoder.simple_string_encoder())
    sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
    counted.uid("count").sink_to(sink.build()).uid("files")
    env.execute()


if __name__ == "__main__":
    main(*sys.argv[1:])
