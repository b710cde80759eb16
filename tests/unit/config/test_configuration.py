from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest

from tidemark.config import (
    CheckpointingMode,
    ConfigOption,
    ConfigOptions,
    Configuration,
    MemorySize,
    Options,
)
from tidemark.config.units import parse_bool, parse_duration, parse_memory_size
from tidemark.errors import ConfigError
from tidemark.types.time import Duration, Time


def full() -> Configuration:
    return (
        Configuration()
        .set_string("s", "text")
        .set_integer("i", 1)
        .set_float("f", 1.5)
        .set_boolean("b", True)
        .set_bytearray("y", bytearray(b"\x01\xff"))
    )


def test_values_come_back_as_they_were_set() -> None:
    conf = full()

    assert conf.get_string("s", "") == "text"
    assert conf.get_integer("i", 0) == 1
    assert conf.get_float("f", 0.0) == 1.5
    assert conf.get_boolean("b", False) is True
    assert conf.get_bytearray("y", bytearray()) == bytearray(b"\x01\xff")


def test_missing_keys_yield_the_default() -> None:
    conf = Configuration()

    assert conf.get_string("k", None) is None
    assert conf.get_integer("k", 3) == 3
    assert conf.get_float("k", 2.5) == 2.5
    assert conf.get_boolean("k", True) is True
    assert conf.get_bytearray("k", b"d") == b"d"


def test_text_is_converted_by_the_getter_asked() -> None:
    conf = Configuration.from_dict({"i": "12", "f": "1.5", "b": "TRUE", "size": "20kb", "wait": "10 s"})

    assert conf.get_integer("i", 0) == 12
    assert conf.get_float("f", 0.0) == 1.5
    assert conf.get_boolean("b", False) is True
    assert conf.get_integer("size", 0) == 20480
    assert conf.get_integer("wait", 0) == 10_000
    assert conf.get_bytearray("i", None) == bytearray(b"12")


@pytest.mark.parametrize(
    ("getter", "text"),
    [("get_integer", "x"), ("get_integer", "5 m"), ("get_boolean", "yes"), ("get_float", "x")],
)
def test_text_that_does_not_fit_is_an_error_naming_the_key(getter: str, text: str) -> None:
    conf = Configuration().set_string("my.key", text)

    with pytest.raises(ConfigError, match=r"my\.key") as caught:
        getattr(conf, getter)("my.key", None)
    assert caught.value.key == "my.key"


def test_to_dict_is_text_and_add_all_to_dict_is_typed() -> None:
    typed: dict[str, Any] = {}
    full().add_all_to_dict(typed)

    assert typed == {"s": "text", "i": 1, "f": 1.5, "b": True, "y": bytearray(b"\x01\xff")}
    assert {k: v for k, v in full().to_dict().items() if k != "y"} == {
        "s": "text",
        "i": "1",
        "f": "1.5",
        "b": "true",
    }


def test_text_form_restores_every_value() -> None:
    restored = Configuration.from_dict(full().to_dict())

    assert restored == full()
    assert hash(restored) == hash(full())
    assert restored.get_bytearray("y", None) == bytearray(b"\x01\xff")


def test_copies_are_independent() -> None:
    original = full()

    for clone in (
        Configuration(original),
        copy.copy(original),
        copy.deepcopy(original),
        pickle.loads(pickle.dumps(original)),
    ):
        clone.set_integer("i", 2)
        assert original.get_integer("i", 0) == 1
        assert clone != original


def test_keys_can_be_listed_tested_and_removed() -> None:
    conf = full()

    assert conf.key_set() == {"s", "i", "f", "b", "y"}
    assert len(conf) == 5
    assert conf.contains_key("s")
    assert conf.remove_config("s") is True
    assert conf.remove_config("s") is False
    assert not conf.contains_key("s")
    assert Configuration()


def test_add_all_copies_with_a_prefix() -> None:
    conf = Configuration().set_string("a", "old").add_all(Configuration().set_string("a", "new"))
    conf.add_all(Configuration().set_string("b", "x"), "pre.")

    assert conf.to_dict() == {"a": "new", "pre.b": "x"}


@pytest.mark.parametrize("key", ["", None, 3])
def test_keys_are_non_empty_text(key: Any) -> None:
    with pytest.raises(ConfigError, match="non-empty text"):
        Configuration().set_string(key, "x")


def test_none_is_no_value() -> None:
    with pytest.raises(ConfigError, match="remove_config"):
        Configuration.from_dict({"a": None})


def test_repr_hides_secrets() -> None:
    assert "hunter2" not in repr(Configuration().set_string("rest.token", "hunter2"))


def test_newest_spelling_of_an_option_wins() -> None:
    conf = Configuration.from_dict({"state.backend.type": "rocksdb", "state.backend": "hashmap"})

    assert conf.get(Options.STATE_BACKEND) == "rocksdb"


def test_setting_an_option_removes_its_other_spellings() -> None:
    conf = Configuration.from_dict({"state.backend.type": "rocksdb"})

    conf.set(Options.STATE_BACKEND, "hashmap")

    assert conf.to_dict() == {"state.backend": "hashmap"}
    assert conf.contains(Options.STATE_BACKEND)
    assert conf.remove(Options.STATE_BACKEND) is True
    assert conf.remove(Options.STATE_BACKEND) is False


def test_option_values_are_checked_when_set_and_when_read() -> None:
    with pytest.raises(ConfigError, match=r"timeout.*at least 10"):
        Configuration().set(Options.CHECKPOINTING_TIMEOUT, 5)
    with pytest.raises(ConfigError, match=r"parallelism\.default.*at most 32768"):
        Configuration().set_integer("parallelism.default", 40_000).get(Options.PARALLELISM)


def test_get_takes_a_default_of_the_caller() -> None:
    assert Configuration().get(Options.STATE_BACKEND, "hashmap") == "hashmap"
    assert Configuration().get(Options.CHECKPOINTING_TIMEOUT) == 600_000


class TestConfigOptions:
    @pytest.mark.parametrize(
        ("option", "text", "value"),
        [
            (ConfigOptions.key("k").string_type().default_value("d"), "x", "x"),
            (ConfigOptions.key("k").boolean_type().default_value(True), "false", False),
            (ConfigOptions.key("k").int_type().default_value(1), "2", 2),
            (ConfigOptions.key("k").long_type().default_value(1), str(2**40), 2**40),
            (ConfigOptions.key("k").float_type().default_value(1.0), "2.5", 2.5),
            (ConfigOptions.key("k").double_type().default_value(1.0), "2", 2.0),
            (ConfigOptions.key("k").duration_type().default_value("1 s"), "2 min", 120_000),
            (ConfigOptions.key("k").memory_type().default_value("1kb"), "2kb", 2048),
            (ConfigOptions.key("k").map_type().default_value({}), "a:1, b:2", {"a": "1", "b": "2"}),
            (
                ConfigOptions.key("k")
                .enum_type(CheckpointingMode)
                .default_value(CheckpointingMode.EXACTLY_ONCE),
                "at-least-once",
                CheckpointingMode.AT_LEAST_ONCE,
            ),
        ],
    )
    def test_each_type_reads_text(self, option: ConfigOption[Any], text: str, value: Any) -> None:
        conf = Configuration().set_string("k", text)

        assert conf.get(option) == value
        assert Configuration().get(option) == option.default
        assert option.parse(option.default_text) == option.default

    def test_option_without_default_reads_as_none(self) -> None:
        option = ConfigOptions.key("k").int_type().no_default_value().with_description("A number.")

        assert Configuration().get(option) is None
        assert not option.has_default_value()
        assert option.description == "A number."

    def test_typed_durations_and_sizes_survive_as_text(self) -> None:
        wait = ConfigOptions.key("w").duration_type().default_value(timedelta(seconds=2))  # type: ignore[arg-type]
        size = ConfigOptions.key("s").memory_type().default_value(MemorySize(10))  # type: ignore[arg-type]

        assert (wait.default, wait.default_text) == (2000, "2000 ms")
        assert (size.default, size.default_text) == (10, "10 bytes")

    @pytest.mark.parametrize(
        ("option", "text"),
        [
            (Options.CHECKPOINTING_MODE, "SOMETIMES"),
            (ConfigOptions.key("k").map_type().no_default_value(), "a"),
            (ConfigOptions.key("k").int_type().no_default_value(), 1.5),
            (ConfigOptions.key("k").float_type().no_default_value(), True),
        ],
    )
    def test_values_that_do_not_fit_are_refused(self, option: ConfigOption[Any], text: Any) -> None:
        with pytest.raises(ConfigError, match=option.key):
            option.parse(text)

    def test_empty_key_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="must not be empty"):
            ConfigOptions.key("")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1024", 1024),
        ("20kb", 20480),
        ("5 mb", 5 << 20),
        ("1G", 1 << 30),
        ("2 TiB", 2 << 40),
        (7, 7),
        ("0", 0),
    ],
)
def test_sizes_count_in_powers_of_1024(text: Any, size: int) -> None:
    assert parse_memory_size(text) == size


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("500", 500),
        ("500 ms", 500),
        ("10 s", 10_000),
        ("5min", 300_000),
        ("2 h", 7_200_000),
        ("1 day", 86_400_000),
        ("1999 us", 1),
        ("-1", -1),
        (7, 7),
        (Time.seconds(1), 1000),
        (Duration.of_millis(3), 3),
        (timedelta(seconds=1), 1000),
    ],
)
def test_durations_are_milliseconds(text: Any, millis: int) -> None:
    assert parse_duration(text) == millis


@pytest.mark.parametrize("parse", [parse_memory_size, parse_duration])
@pytest.mark.parametrize("text", ["", "x", "5 parsecs", "1.5 s", True])
def test_other_text_is_neither_size_nor_duration(parse: Any, text: Any) -> None:
    with pytest.raises(ConfigError, match="is not a"):
        parse(text)


def test_sizes_are_not_negative() -> None:
    with pytest.raises(ConfigError, match="negative"):
        parse_memory_size("-1")
    with pytest.raises(ConfigError, match="negative"):
        MemorySize(-1)


def test_memory_size_converts_to_larger_units() -> None:
    size = MemorySize.of_mebi_bytes(3)

    assert size == MemorySize.parse("3 mb")
    assert (size.get_bytes(), size.get_kibi_bytes(), size.get_mebi_bytes()) == (3 << 20, 3072, 3)
    assert (size.get_gibi_bytes(), size.get_tebi_bytes()) == (0, 0)
    assert parse_memory_size(size) == size.get_bytes()


def test_booleans_are_true_or_false() -> None:
    assert parse_bool(" True ") is True
    with pytest.raises(ConfigError, match="'true' or 'false'"):
        parse_bool("1")
