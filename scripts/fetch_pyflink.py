"""Downloads the `apache-flink` wheel whose signatures a test compares ours with; nothing of it is installed or run.

`python scripts/fetch_pyflink.py` puts it into the cache unless it is there. Without a network it says so and succeeds:
the test is then skipped, with the reason.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "2.3.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemark" / "pyflink"
# The same sources for every platform; named so that every machine finds one.
PLATFORM = ("--platform", "manylinux2014_x86_64", "--python-version", "3.11")


def cached_wheel() -> Path | None:
    """The wheel, if it was downloaded before."""
    return next(iter(sorted(CACHE.glob(f"apache_flink-{VERSION}-*.whl"))), None)


def main() -> int:
    """Download the wheel unless it is there."""
    if cached_wheel() is not None:
        return 0
    CACHE.mkdir(parents=True, exist_ok=True)
    # Renamed when it is complete: an interrupted download is no wheel.
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += [*PLATFORM, "--dest", folder, f"apache-flink=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = list(Path(folder).glob("*.whl"))
        if done.returncode or not found:
            print(
                f"apache-flink {VERSION} cannot be had; its signatures are not compared:\n{done.stderr.strip()}"
            )
            return 0
        found[0].rename(CACHE / found[0].name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
