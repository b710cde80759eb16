"""The protocol between driver and slot: payloads are pickles, errors are described failures.

Pickles are read because both ends belong to one job and have proved, before the first frame, that they know its token.
"""

from __future__ import annotations

import pickle

import cloudpickle

from tidemark.protocol.failure import FailureInfo
from tidemark.rpc import Codec

__all__ = ["SLOT_CONTROL"]

SLOT_CONTROL = Codec(
    cloudpickle.dumps,
    pickle.loads,
    lambda error: pickle.dumps(FailureInfo.of(error)),
    lambda body: pickle.loads(body).exception(),
)
