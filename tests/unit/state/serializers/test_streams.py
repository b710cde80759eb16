from __future__ import annotations

import io
import pickle

import pytest

from tidemark.errors import SerializationError
from tidemark.state.serializers import DataInputView, DataOutputView


def test_what_is_written_is_read_back_in_order() -> None:
    out = DataOutputView()

    out.write_int(-1)
    out.write_long(2**40)
    out.write_utf("ä\ud800")
    out.write_bytes(b"xyz")
    out.write_boolean(True)
    out.write_double(1.5)
    out.write(b"tail")
    out.flush()
    in_ = DataInputView(out.getvalue())

    assert (in_.read_int(), in_.read_long(), in_.read_utf()) == (-1, 2**40, "ä\ud800")
    assert (in_.read_bytes(), in_.read_boolean(), in_.read_double()) == (b"xyz", True, 1.5)
    assert in_.read() == b"tail"


def test_views_wrap_any_binary_stream() -> None:
    stream = io.BytesIO()

    DataOutputView(stream).write_int(7)
    pickle.dump({"a": 1}, DataOutputView(stream))
    stream.seek(0)
    in_ = DataInputView(stream)

    assert in_.read_int() == 7
    assert pickle.load(in_) == {"a": 1}


def test_buffers_can_be_filled() -> None:
    buffer = bytearray(4)

    count = DataInputView(b"abc").readinto(buffer)

    assert (count, bytes(buffer)) == (3, b"abc\x00")


def test_numbers_that_do_not_fit_and_short_streams_are_refused() -> None:
    with pytest.raises(SerializationError, match="4 bytes"):
        DataOutputView().write_int(2**31)
    with pytest.raises(SerializationError, match="8 bytes"):
        DataOutputView().write_long(2**63)
    with pytest.raises(SerializationError, match="ended"):
        DataInputView(b"\x00").read_int()
