"""Running (count, sum) per key on RocksDB, a row for every row: our two styles beside `transformWithState` in Scala.

`make bench-transform`. Whole jobs at parallelism 2, in turns in one run, every result checked. Rows are made in the JVM
in all of them: tidemark reads Spark's `range` in epochs, Spark its `rate-micro-batch`. See `suite/spark_scala` for its
settings. CPU time is that of all processes of a system: it says more than the rate if the machine has other work.

    python benchmarks/bench_transform.py --rounds 3 --keys 10000
"""

from __future__ import annotations

import argparse
import gc
import warnings
from collections import defaultdict

from bench_growth import cpu_per_record
from measure import Table, epoch_log, median, progress, spread, tuned_session
from suite.peers import PeerMissingError
from suite.spark_scala import SparkScala
from suite.work import Rows
from totals import Work, run_job

NAMES = {
    "record": "tidemark, process",
    "batch": "tidemark, process_batch",
    "scala": "Spark, transformWithState in Scala",
}


def main() -> None:
    warnings.filterwarnings("ignore", category=FutureWarning)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, nargs="+", default=[100, 10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    try:
        scala = SparkScala()
    except PeerMissingError as exc:
        raise SystemExit(f"transformWithState cannot be had here: {exc}") from exc
    spark = tuned_session("tidemark bench-transform")
    figures: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    try:
        with epoch_log(cpu=True) as log:
            for turn in range(arguments.rounds + 1):
                for keys in arguments.keys:
                    rows = Rows(arguments.records if turn else arguments.records // 4, keys, "random")
                    for system, name in NAMES.items():
                        gc.collect()
                        if system == "scala":
                            figure = scala.rate(rows)
                        else:
                            job = run_job(spark, log, rows, Work("rocksdb"), system == "batch")
                            figure = log.steady_rate(job), cpu_per_record(log, job)
                        progress(f"{keys:,} keys, {name}: {figure[0]:,.0f} /s, {figure[1]:.2f} us")
                        if turn:
                            figures[keys, system].append(figure)
    finally:
        scala.close()
        spark.stop()
    table = Table(40)
    for keys in arguments.keys:
        table.title(f"RocksDB, {keys:,} keys: records per second, CPU microseconds per record")
        for system, name in NAMES.items():
            rates, used = zip(*figures[keys, system], strict=True)
            table.row(name, f"{median(rates):,.0f} /s", f"({spread(rates)})  {median(used):.2f} us")


if __name__ == "__main__":
    main()
