"""State of classes that only the program has: what the commands do with it from another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import Command

PROGRAM = """
import sys
from dataclasses import dataclass
from tidemark import Configuration, KeyedProcessFunction, StreamExecutionEnvironment, Types, ValueStateDescriptor
from tidemark import SourceFunction

@dataclass
class Account:
    orders: int = 0
    owner: str = ""

ACCOUNT = ValueStateDescriptor("account", Account)
ACCOUNT.set_queryable("accounts")

class Orders(SourceFunction):
    def run(self, ctx):
        import time
        self.running = True
        for name in ["ann", "bob", "ann"]:
            ctx.collect(name)
        while self.running:
            time.sleep(0.01)

    def cancel(self):
        self.running = False

class Totals(KeyedProcessFunction):
    def open(self, runtime_context):
        self.account = runtime_context.get_state(ACCOUNT)

    def process_element(self, name, ctx):
        account = self.account.value() or Account(owner=name)
        account.orders += 1
        self.account.update(account)

settings = {"execution.target": "local", "queryable-state.enable": "true", "queryable-state.proxy.ports": "0"}
env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
env.set_parallelism(1)
orders = env.add_source(Orders(), type_info=Types.STRING()).uid("orders")
orders.key_by(lambda name: name, Types.STRING()).process(Totals(), Types.STRING()).uid("totals").print()
job = env.execute_async("shop")
while job.get_progress()["records"] < 3:
    pass
print(job.get_job_id(), flush=True)
sys.stdin.readline()
print(job.stop_with_savepoint(False, sys.argv[1]).result(), flush=True)
"""


def test_values_are_shown_and_keys_erased_without_the_class(tide: Command, tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(PROGRAM)
    command = [sys.executable, str(file), str(tmp_path / "savepoints")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        job = program.stdout.readline().strip()
        shown = tide("query", job, "accounts", "ann")
        plain = tide("--json", "query", job, "accounts", "ann")
        info = tide("info", job)
        savepoint = program.communicate("\n", timeout=120)[0].strip()

    assert shown.stdout == "Account(orders=2, owner='ann')\n", shown.stderr
    assert json.loads(plain.stdout)["value"] == {"orders": 2, "owner": "ann"}
    assert "Web page" in info.stdout
    erased = tide("erase", savepoint, "--key", "ann", "-o", str(tmp_path / "erased"))
    assert erased.exit_code == 0, erased.stderr
    rekeyed = tide("rekey", savepoint, "--max-parallelism", "64", "-o", str(tmp_path / "rekeyed"))
    assert rekeyed.exit_code == 0, rekeyed.stderr
    assert "removed: 'ann'" in tide("diff", savepoint, str(tmp_path / "erased")).stdout
