from __future__ import annotations

import pytest

from tidemark import (
    BucketAssigner,
    ByteArraySchema,
    Duration,
    Encoder,
    FileSink,
    FileSource,
    NumberSequenceSource,
    OutputFileConfig,
    RollingPolicy,
    SimpleStringSchema,
    StreamFormat,
    Types,
)


def test_number_sequences():
    source = NumberSequenceSource(1, 10)

    assert source.source_spec().bounded
    assert source.produced_type() == Types.LONG()
    with pytest.raises(ValueError, match="from 5 down to 1"):
        NumberSequenceSource(5, 1)


def test_file_sources_are_bounded_unless_monitored(tmp_path):
    lines = StreamFormat.text_line_format("latin-1")
    builder = FileSource.for_record_stream_format(lines, tmp_path, "/b")

    static = builder.process_static_file_set().build().source_spec()
    monitored = builder.monitor_continuously(Duration.of_seconds(2)).build().source_spec()

    assert static.bounded
    assert (static.paths, static.format.charset) == ((str(tmp_path), "/b"), "latin-1")
    assert not monitored.bounded
    assert monitored.monitor_ms == 2000
    with pytest.raises(ValueError, match="positive"):
        builder.monitor_continuously(0)
    with pytest.raises(ValueError, match="path"):
        FileSource.for_record_stream_format(lines)
    with pytest.raises(TypeError, match="StreamFormat"):
        FileSource.for_record_stream_format("csv", "/a")
    with pytest.raises(ValueError, match="charset"):
        StreamFormat.text_line_format("klingon")


def test_file_sinks_carry_their_settings():
    sink = (
        FileSink.for_row_format("/out", Encoder.simple_string_encoder())
        .with_output_file_config(
            OutputFileConfig.builder().with_part_prefix("p").with_part_suffix(".txt").build()
        )
        .with_rolling_policy(RollingPolicy.default_rolling_policy(10, 20, 30))
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_bucket_check_interval(5)
        .build()
    )

    spec = sink.sink_spec()
    assert (spec.kind, spec.guarantee) == ("files", "exactly-once")
    assert spec.sink is sink
    assert sink.base_path == "/out"
    assert (sink.output_file_config.part_prefix, sink.output_file_config.part_suffix) == ("p", ".txt")
    assert sink.bucket_assigner.get_bucket_id("x", 0) == ""
    assert sink.bucket_check_interval == 5
    with pytest.raises(ValueError, match="positive"):
        FileSink.for_row_format("/out", Encoder.simple_string_encoder()).with_bucket_check_interval(0)
    with pytest.raises(TypeError, match="Encoder"):
        FileSink.for_row_format("/out", "utf-8")
    with pytest.raises(ValueError, match="base path"):
        FileSink.for_row_format("", Encoder.simple_string_encoder())


def test_default_file_sink():
    sink = FileSink.for_row_format("/out", Encoder.simple_string_encoder()).build()

    assert sink.output_file_config == OutputFileConfig("part", "")
    assert sink.rolling_policy.part_size == 128 * 1024 * 1024
    assert len(sink.bucket_assigner.get_bucket_id("x", 0)) == len("1970-01-01--00")


def test_encoders_write_lines_as_print_shows_them():
    encoder = Encoder.simple_string_encoder()

    assert encoder.encode(("a", 1), Types.TUPLE([Types.STRING(), Types.INT()])) == b"(a,1)\n"
    assert encoder.encode("ä", None) == "ä\n".encode()


def test_rolling_policies():
    policy = RollingPolicy.default_rolling_policy(10, 20, 30)

    assert not policy.should_roll(9, 19, 29)
    assert policy.should_roll(10, 0, 0)
    assert policy.should_roll(0, 20, 0)
    assert policy.should_roll(0, 0, 30)
    assert not RollingPolicy.on_checkpoint_rolling_policy().should_roll(10**9, 10**9, 10**9)
    with pytest.raises(ValueError, match="positive"):
        RollingPolicy.default_rolling_policy(0)


def test_buckets_by_time():
    hours = BucketAssigner.date_time_bucket_assigner(timezone_id="UTC")
    minutes = BucketAssigner.date_time_bucket_assigner("yyyyMMdd/HH-mm%", "UTC")

    assert hours.get_bucket_id("x", 3_600_000) == "1970-01-01--01"
    assert minutes.get_bucket_id("x", 60_000) == "19700101/00-01%"
    with pytest.raises(ValueError, match="time zone"):
        BucketAssigner.date_time_bucket_assigner(timezone_id="Mars/North")
    with pytest.raises(ValueError, match="QQ"):
        BucketAssigner.date_time_bucket_assigner("yyyyQQ")


def test_schemas():
    text = SimpleStringSchema()
    assert text.deserialize(text.serialize("ä")) == "ä"
    assert ByteArraySchema().deserialize(ByteArraySchema().serialize(b"x")) == b"x"
