"""Kafka to Kafka, exactly once: counts words of one topic into another.

Needs a broker and both topics; `scripts/kafka.sh start /tmp/kafka 9092` starts one to try things out:

    python examples/kafka_to_kafka.py localhost:9092 words counts

Counts appear in the second topic with each checkpoint, once, whatever is killed in between; read them with a
`read_committed` consumer. With a fourth argument the job ends at what the first topic holds when it starts.
"""

from __future__ import annotations

import sys
import tempfile

from tidemark import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KeyedProcessFunction,
    SimpleStringSchema,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, word, ctx):
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield f"{word} {count}"


def main(bootstrap, words, counts, bounded=None):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(1000)
    env.get_checkpoint_config().set_checkpoint_storage_dir(f"file://{tempfile.mkdtemp()}")
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(bootstrap)
        .set_topics(words)
        .set_group_id("kafka-to-kafka")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
    )
    if bounded:
        source.set_bounded(KafkaOffsetsInitializer.latest())
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(counts)
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers(bootstrap)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("kafka-to-kafka")
        .build()
    )
    stream = env.from_source(source.build(), WatermarkStrategy.no_watermarks(), "words").uid("words")
    counted = stream.key_by(lambda word: word, Types.STRING()).process(Count(), Types.STRING()).uid("count")
    counted.sink_to(sink).uid("counts")
    env.execute("kafka to kafka")


if __name__ == "__main__":
    main(*sys.argv[1:])
