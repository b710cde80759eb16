from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidemark.config import Configuration, Options
from tidemark.config.loader import (
    default_parallelism,
    effective_configuration,
    environment_variable,
    load_environment,
    load_file_configuration,
    overlay,
    parse_conf,
)
from tidemark.config.options import all_options, find_option
from tidemark.errors import ConfigError


def effective(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **layers: Configuration):
    (tmp_path / "tidemark-conf.yaml").write_text(text)
    return effective_configuration(
        layers.get("programmatic"), layers.get("configuration"), environ=environ or {}, conf_dir=tmp_path
    )


def test_flat_lines_with_colon_or_equals_sign_are_read() -> None:
    conf = parse_conf(
        """
        # a comment
        state.backend: rocksdb   # another
        restart-strategy.failure-rate.delay = 10 s
        state.checkpoints.dir: hdfs://host:40010/flink/checkpoints
        quoted: "a # b"
        url: http://x/#frag
        """
    )

    assert conf.to_dict() == {
        "state.backend": "rocksdb",
        "restart-strategy.failure-rate.delay": "10 s",
        "state.checkpoints.dir": "hdfs://host:40010/flink/checkpoints",
        "quoted": "a # b",
        "url": "http://x/#frag",
    }


def test_nested_yaml_becomes_dotted_keys() -> None:
    conf = parse_conf(
        """---
restart-strategy:
  type: fixed-delay
  fixed-delay:
    attempts: 3
    delay: '10 s'
state.backend:
  type: rocksdb
  rocksdb.localdir:
    - /a
    - /b
ports: [1, "2"]
nothing: null
empty:
last: 1
"""
    )

    assert conf.to_dict() == {
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "10 s",
        "state.backend.type": "rocksdb",
        "state.backend.rocksdb.localdir": "/a,/b",
        "ports": "1,2",
        "last": "1",
    }


def test_line_that_is_no_entry_is_an_error_with_its_number() -> None:
    with pytest.raises(ConfigError, match="conf, line 2: 'what is this'"):
        parse_conf("a: 1\nwhat is this\n", "conf")


def test_tidemark_file_wins_over_flink_file(tmp_path: Path) -> None:
    (tmp_path / "flink-conf.yaml").write_text("state.backend: filesystem")
    assert load_file_configuration(tmp_path).get(Options.STATE_BACKEND) == "filesystem"

    (tmp_path / "tidemark-conf.yaml").write_text("state.backend: rocksdb")
    assert load_file_configuration(tmp_path).get(Options.STATE_BACKEND) == "rocksdb"


def test_directory_comes_from_the_variable_or_is_conf(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "flink-conf.yaml").write_text("a: 1")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_CONF_DIR", raising=False)

    assert load_file_configuration().to_dict() == {"a": "1"}

    (tmp_path / "other").mkdir()
    monkeypatch.setenv("TIDEMARK_CONF_DIR", str(tmp_path / "other"))
    assert load_file_configuration().to_dict() == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("whose", ["conf", "conf/tidemark-conf.yaml", "conf/link"])
def test_a_file_of_somebody_else_in_the_current_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "conf"
    directory.mkdir()
    file = directory / "tidemark-conf.yaml"
    if whose == "conf/link":
        (directory / "ours.yaml").write_text("spark.plugins: theirs.Plugin\n")
        file.symlink_to("ours.yaml")
        whose = "conf/tidemark-conf.yaml"
    else:
        file.write_text("spark.plugins: theirs.Plugin\n")
    os.chown(tmp_path / whose, 65534, 65534, follow_symlinks=False)

    with pytest.raises(ConfigError, match=f"{whose} belongs to user 65534.*TIDEMARK_CONF_DIR=conf"):
        load_file_configuration(environ={})

    trusted = load_file_configuration(environ={"TIDEMARK_CONF_DIR": "conf"})
    assert trusted.to_dict()["spark.plugins"] == "theirs.Plugin"


def test_named_directory_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        load_file_configuration(environ={"TIDEMARK_CONF_DIR": str(tmp_path / "nope")})


def test_environment_variables_are_named_after_keys() -> None:
    conf = load_environment(
        {
            "TIDEMARK_STATE_BACKEND": "rocksdb",
            "TIDEMARK_EXECUTION_CHECKPOINTING_NUM_RETAINED": "3",
            "TIDEMARK_CONF_DIR": "/x",
            "TIDEMARK_UNKNOWN": "1",
            "PATH": "/bin",
        }
    )

    assert conf.to_dict() == {"state.backend": "rocksdb", "execution.checkpointing.num-retained": "3"}


def test_properties_variable_carries_any_key_and_loses_to_a_named_one() -> None:
    conf = load_environment(
        {"TIDEMARK_PROPERTIES": "my.key: 1\nstate.backend.type: hashmap", "TIDEMARK_STATE_BACKEND": "rocksdb"}
    )

    assert conf.to_dict() == {"my.key": "1", "state.backend": "rocksdb"}


def test_no_two_keys_share_an_environment_variable() -> None:
    names = [environment_variable(key) for option in all_options() for key in option.spellings]

    assert len(set(names)) == len(names)
    assert not {"TIDEMARK_CONF_DIR", "TIDEMARK_PROPERTIES", "TIDEMARK_HOME", "TIDEMARK_TOKEN"} & set(names)


def test_each_layer_wins_over_those_below_whatever_the_spelling(tmp_path: Path) -> None:
    file = "execution.checkpointing.dir: /file"
    environ = {"TIDEMARK_STATE_CHECKPOINTS_DIR": "/env"}
    user = Configuration.from_dict({"execution.checkpointing.dir": "/user"})
    setter = Configuration.from_dict({"state.checkpoints.dir": "/setter"})

    def seen(**layers: Configuration) -> str | None:
        conf = effective(tmp_path, file, environ, **layers)
        assert conf.get_string("state.checkpoints.dir", None) == conf.get_string(
            "execution.checkpointing.dir", None
        )
        return conf.get_string("state.checkpoints.dir", None)

    assert effective(tmp_path, file).get_string("state.checkpoints.dir", None) == "/file"
    assert seen() == "/env"
    assert seen(configuration=user) == "/user"
    assert seen(configuration=user, programmatic=setter) == "/setter"


def test_defaults_are_filled_in_under_every_spelling(tmp_path: Path) -> None:
    conf = effective(tmp_path)

    assert conf.get_integer("state.backend.fs.memory-threshold", 0) == 1024
    assert conf.get_integer("execution.checkpointing.data-inline-threshold", 0) == 1024
    assert conf.get_string("restart-strategy.fixed-delay.delay", "") == "1 s"
    assert conf.get_string("execution.checkpointing.mode", "") == "EXACTLY_ONCE"
    assert conf.get_integer("execution.checkpointing.timeout", 0) == 600_000
    assert conf.get_integer("parallelism.default", 0) == default_parallelism()
    assert not conf.contains_key("state.backend")
    assert not conf.contains_key("pipeline.max-parallelism")


def test_defaults_can_be_left_out(tmp_path: Path) -> None:
    conf = effective_configuration(environ={}, conf_dir=tmp_path, fill_defaults=False)

    assert conf.to_dict() == {}


def test_unknown_keys_are_kept(tmp_path: Path) -> None:
    conf = effective(tmp_path, "my.own: x", programmatic=Configuration.from_dict({"other": "y"}))

    assert (conf.get_string("my.own", None), conf.get_string("other", None)) == ("x", "y")


def test_programmatic_layer_may_be_a_dict(tmp_path: Path) -> None:
    conf = effective_configuration({"state.backend": "rocksdb"}, environ={}, conf_dir=tmp_path)

    assert conf.get_string("state.backend.type", None) == "rocksdb"


def test_bad_value_in_a_file_is_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"state\.backend\.async"):
        effective(tmp_path, "state.backend.async: maybe")


def test_overlay_leaves_its_arguments_alone() -> None:
    base, top = Configuration.from_dict({"a": "1"}), Configuration.from_dict({"a": "2"})

    assert overlay(base, top).to_dict() == {"a": "2"}
    assert (base.to_dict(), top.to_dict()) == ({"a": "1"}, {"a": "2"})


@pytest.mark.parametrize("option", all_options(), ids=lambda option: option.key)
def test_every_option_is_described_and_has_a_default_that_parses(option) -> None:
    assert option.description
    if option.default_text is not None:
        assert option.parse(option.default_text) == option.default
    assert all(find_option(key) is option for key in option.spellings)


SPECIFIED = {
    "state.backend": None,
    "state.backend.async": True,
    "state.backend.incremental": False,
    "state.backend.local-recovery": False,
    "taskmanager.state.local.root-dirs": None,
    "state.backend.fs.memory-threshold": 1024,
    "state.backend.fs.write-buffer-size": 4096,
    "state.backend.rocksdb.ttl.compaction.filter.enabled": False,
    "state.checkpoints.dir": None,
    "state.checkpoints.num-retained": 1,
    "state.savepoints.dir": None,
    "akka.framesize": 10485760,
    "execution.checkpointing.min-pause": 0,
    "restart-strategy.failure-rate.failure-rate-interval": 60_000,
    "queryable-state.enable": False,
    "queryable-state.server.ports": "9067",
    "queryable-state.proxy.ports": "9069",
    "queryable-state.proxy.query-threads": 0,
    "execution.state-recovery.ignore-unclaimed-state": False,
    "pipeline.auto-watermark-interval": 200,
}


@pytest.mark.parametrize(("key", "default"), SPECIFIED.items())
def test_defaults_are_those_of_the_specification(key: str, default: object) -> None:
    option = find_option(key)

    assert option is not None
    assert option.default == default


def test_key_nobody_declared_is_no_option() -> None:
    assert find_option("no.such.key") is None


def test_a_file_as_editors_on_windows_write_it(tmp_path: Path) -> None:
    (tmp_path / "tidemark-conf.yaml").write_bytes(
        b"\xef\xbb\xbfstate.backend: rocksdb\r\nparallelism.default: 3\r\n"
    )

    read = load_file_configuration(tmp_path)

    assert read.to_dict() == {"state.backend": "rocksdb", "parallelism.default": "3"}


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "tidemark-conf.yaml").write_bytes(b"state.backend: \xff")

    with pytest.raises(ConfigError, match=r"tidemark-conf.yaml is not text in UTF-8"):
        load_file_configuration(tmp_path)
