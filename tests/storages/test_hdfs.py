"""What only HDFS has: renames in one step, directories that can be taken away, name nodes that stand in, users."""

from __future__ import annotations

from typing import Any

import pytest
from tests.recovery.local_jobs import DEADLINE, Numbers, local_env, new_board
from tests.storages.conftest import Store
from tests.storages.test_jobs import BLOCK, BLOCKS, At, fail

from tidemark import Configuration, Encoder, FileSink, RestartStrategies, Types
from tidemark.checkpoint.storage import FileSystemStorage
from tidemark.config.file_systems import file_system_options
from tidemark.errors import FencedError, StorageError, StorageVerdict
from tidemark.paths import remote, use_file_systems
from tidemark.runtime.claim import Claim
from tidemark.runtime.places import create_staged, open_place
from tidemark.runtime.sources.files import expand_path, open_binary

pytestmark = [
    pytest.mark.hdfs,
    pytest.mark.modes("auto", reason="Storage knows nothing of modes, and each request takes its time."),
]


def test_a_rename_whose_answer_was_lost_is_done_once(hdfs: Store) -> None:
    root = hdfs.new_root()
    filesystem, path = remote(root)
    filesystem.pipe_file(f"{path}/old", b"content")
    hdfs.cut = b"op=RENAME"

    filesystem.mv(f"{path}/old", f"{path}/new")

    assert hdfs.cut == b""
    assert hdfs.objects(root) == {"new": b"content"}


@pytest.mark.parametrize("lost", [b"op=RENAME", b"op=CREATE"])
def test_whoever_created_a_file_learns_it_though_the_answer_was_lost(hdfs: Store, lost: bytes) -> None:
    root = hdfs.new_root()
    place = open_place(root)
    place.make_private("claim")
    hdfs.cut = lost

    place.create("claim/record", b"mine")

    assert hdfs.cut == b""
    assert hdfs.objects(root) == {"claim/record": b"mine"}
    with pytest.raises(FileExistsError):
        place.create("claim/record", b"of somebody else")
    assert hdfs.objects(root) == {"claim/record": b"mine"}


def test_an_older_claimant_can_neither_stage_nor_publish_any_more(hdfs: Store) -> None:
    root = hdfs.new_root()
    place = open_place(root)
    first = Claim.acquire(place, ".claim", "first", "The sink")
    with create_staged(f"{root}/{first.area}", "staged") as file:
        file.write(b"staged")
    late = create_staged(f"{root}/{first.area}", "late")
    late.write(b"late")

    second = Claim.acquire(place, ".claim", "second", "The sink")

    with pytest.raises(FencedError, match="Job second"):
        first.verify()
    with pytest.raises(FileNotFoundError):
        late.close()
    with pytest.raises(FileNotFoundError):
        place.move(f"{first.area}/staged", "published")
    assert place.names(second.area) == ["staged"]
    assert {name.rpartition("/")[2] for name in hdfs.objects(root)} == {"staged", ".generation-00000002"}


def test_a_name_node_that_is_down_is_stood_in_for(hdfs: Store) -> None:
    settings = hdfs.settings()
    settings["hdfs.webhdfs.address"] = f"http://127.0.0.1:1, {settings['hdfs.webhdfs.address']}"
    use_file_systems(file_system_options(Configuration.from_dict(settings)))
    root = hdfs.new_root()

    FileSystemStorage().write(f"{root}/file", b"content")

    assert hdfs.objects(root) == {"file": b"content"}


def test_who_may_not_is_told_so_at_once(hdfs: Store) -> None:
    root = hdfs.new_root()
    FileSystemStorage().write(f"{root}/file", b"content")
    remote(root)[0].chmod(remote(root)[1], 0o700)
    settings = {"hdfs.webhdfs.address": f"http://{hdfs.address}", "hdfs.webhdfs.user": "a-stranger"}
    use_file_systems(file_system_options(Configuration.from_dict(settings)))

    with pytest.raises(StorageError, match="Permission denied: user=a-stranger") as caught:
        FileSystemStorage().read(f"{root}/file")

    assert caught.value.verdict is StorageVerdict.TRANSIENT


def test_a_block_that_raises_leaves_nothing(hdfs: Store) -> None:
    root = hdfs.new_root()
    filesystem, path = remote(root)

    with pytest.raises(ValueError, match="in the middle"), filesystem.open(f"{path}/file", "wb") as file:
        file.write(b"half")
        raise ValueError("in the middle")
    forgotten = filesystem.open(f"{path}/forgotten", "wb")
    forgotten.write(b"half")
    del forgotten

    assert hdfs.objects(root) == {}


def test_files_are_published_to_hdfs_once_and_read_from_there(hdfs: Store) -> None:
    root = hdfs.new_root()
    seen = new_board()
    seen.set(BLOCK + 1, fail)
    env = local_env({**hdfs.settings(), "state.checkpoints.dir": f"{root}/checkpoints"}, 2)
    env.enable_checkpointing(10)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    numbers = env.add_source(Numbers(seen.name, BLOCKS, BLOCK, True), type_info=Types.LONG()).uid("numbers")
    lines = numbers.map(At(seen.name), Types.LONG()).map(str, Types.STRING())
    lines.sink_to(FileSink.for_row_format(f"{root}/out", Encoder.simple_string_encoder()).build()).uid("out")
    env.execute_async().get_job_execution_result().result(DEADLINE)

    files = expand_path(f"{root}/out")
    assert all(path.startswith(f"{root}/out/") for path in files)
    assert sorted(int(line) for path in files for line in content(path).split()) == list(
        range(BLOCK * BLOCKS)
    )
    assert not [name for name in hdfs.objects(f"{root}/out") if "inprogress" in name or "/." in f"/{name}"]


def content(path: str) -> Any:
    with open_binary(path) as file:
        return file.read()
