"""Every public name of PyFlink's DataStream API is here, with its parameters, or on the list below with a reason."""

from __future__ import annotations

import runpy
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.unit.pyflink_signatures import Theirs, difference, read_wheel

SCRIPT = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "fetch_pyflink.py"))

JAVA = "the Java gateway: what it converts, wraps or hands over exists on the Java side only"
TABLE = "the Table API"
ELSEWHERE = "a connector of a system that is reached through Spark's"
INTERNAL = "PyFlink's own machinery, not meant for programs"

# Pattern of names -> why there is no such thing here.
EXCEPTIONS = {
    "*.get_java_*": JAVA,
    "*.to_j_row_kind": JAVA,
    "common.typeinfo.*.need_conversion": JAVA,
    "common.typeinfo.*.to_internal_type": JAVA,
    "common.typeinfo.*.from_internal_type": JAVA,
    "common.typeinfo.InstantTypeInfo*": "Types.INSTANT() is a basic type here",
    "common.typeinfo.SqlTimeTypeInfo*": "Types.SQL_DATE(), SQL_TIME() and SQL_TIMESTAMP() are basic types here",
    "common.typeinfo.DateTypeInfo*": JAVA,
    "common.typeinfo.TimeTypeInfo*": JAVA,
    "common.typeinfo.TimestampTypeInfo*": JAVA,
    "common.typeinfo.LocalTimeTypeInfo*": JAVA,
    "common.typeinfo.ExternalTypeInfo*": TABLE,
    "common.serialization.RowDataBulkWriterFactory*": TABLE,
    "common.serializer.VoidNamespaceSerializer*": INTERNAL,
    "common.input_dependency_constraint*": "an option that Flink has removed",
    "common.io*": JAVA,
    "common.restart_strategy.RestartStrategies.*RestartStrategyConfiguration.__init__": "made by the factories",
    "common.utils*": INTERNAL,
    "common.watermark_strategy.AssignerWithPeriodicWatermarksWrapper*": JAVA,
    "datastream.connectors.base.StreamTransformer*": JAVA,
    "datastream.connectors.base.SupportsPreprocessing*": JAVA,
    "datastream.connectors.file_system.FileSink.get_transformer": JAVA,
    "datastream.connectors.cassandra*": ELSEWHERE,
    "datastream.connectors.dynamic_kafka*": ELSEWHERE,
    "datastream.connectors.elasticsearch*": ELSEWHERE,
    "datastream.connectors.hybrid_source*": "switches between Java sources of other systems",
    "datastream.connectors.jdbc*": ELSEWHERE,
    "datastream.connectors.kafka.FlinkKafka*": "of the 1.x line, replaced by KafkaSource and KafkaSink",
    "datastream.connectors.kafka.Semantic*": "of FlinkKafkaProducer",
    "datastream.connectors.kafka.Kafka*.get_transformer": JAVA,
    "datastream.connectors.kinesis*": ELSEWHERE,
    "datastream.connectors.pulsar*": ELSEWHERE,
    "datastream.connectors.rabbitmq*": ELSEWHERE,
    "datastream.formats.orc*": "a format of which there is no writer here: Parquet",
    "datastream.data_stream.KeyedStream.AccumulateType*": INTERNAL,
    "datastream.data_stream.BroadcastConnectedStream.__init__": "made by connect(); the states are the stream's",
    "datastream.formats.csv.CsvSchemaBuilder.set_any_property_name": "surplus columns have no field in a row type",
    "datastream.functions.AsyncFunctionDescriptor*": INTERNAL,
    "datastream.functions.FunctionWrapper*": INTERNAL,
    "datastream.functions.ReduceFunctionWrapper*": INTERNAL,
    "datastream.functions.JavaFunctionWrapper*": JAVA,
    "datastream.functions.Internal*": INTERNAL,
    "datastream.functions.PassThrough*WindowFunction*": INTERNAL,
    "datastream.state_backend.EmbeddedRocksDBStateBackend.set_options": "takes a callable, not a Java class name",
    "datastream.utils*": INTERNAL,
    "datastream.window.long_to_int_with_bit_mixing": INTERNAL,
    "datastream.window.mod_inverse": INTERNAL,
    "datastream.window.WindowOperationDescriptor*": INTERNAL,
    "datastream.window.Min*": INTERNAL,
    "datastream.window.Continuous*Trigger.register_next_fire_timestamp": INTERNAL,
}


@pytest.fixture(scope="module")
def pyflink() -> list[Theirs]:
    wheel = SCRIPT["cached_wheel"]()
    if wheel is None:
        pytest.skip(
            f"NOT COMPARED WITH PYFLINK: no apache-flink {SCRIPT['VERSION']} in {SCRIPT['CACHE']}; "
            "run python scripts/fetch_pyflink.py"
        )
    return read_wheel(wheel)


def excepted(name: str) -> list[str]:
    return [pattern for pattern in EXCEPTIONS if fnmatchcase(name, pattern)]


def test_every_public_name_of_pyflink_is_here_with_its_parameters(pyflink: list[Theirs]) -> None:
    assert len(pyflink) > 1000

    wrong = {theirs.name: difference(theirs) for theirs in pyflink if not excepted(theirs.name)}

    assert {name: why for name, why in wrong.items() if why is not None} == {}


def test_every_exception_from_parity_is_needed(pyflink: list[Theirs]) -> None:
    used = {
        pattern for theirs in pyflink for pattern in excepted(theirs.name) if difference(theirs) is not None
    }

    assert EXCEPTIONS.keys() - used == set()


@pytest.mark.parametrize(
    ("theirs", "told"),
    [
        (Theirs("common.time.Time"), None),
        (Theirs("common.time.Time.gone"), "missing"),
        (Theirs("common.gone.Time"), "missing"),
        (Theirs("common.time.Time.__init__", ("milliseconds",)), None),
        (Theirs("common.time.Time.__init__", ("millis",)), "takes (milliseconds) instead of (millis)"),
        (Theirs("common.time.Time.__init__", ()), "also requires milliseconds"),
        (
            Theirs("common.time.Time.__init__", ("milliseconds",), frozenset({"milliseconds"})),
            "requires milliseconds, optional there",
        ),
    ],
)
def test_the_comparison_tells_what_differs(theirs: Theirs, told: str | None) -> None:
    assert difference(theirs) == told
