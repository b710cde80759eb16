"""`query`: read one key of a queryable state."""

from __future__ import annotations

import click

from tidemark.cli.settings import job_options, settings_of
from tidemark.queryablestate.plain_values import KEY_TYPES, find_state, parse_key, plain_value
from tidemark.tls import client_side

__all__ = ["query"]


@click.command(short_help="Read a queryable state of JOB.")
@click.argument("job")
@click.argument("name")
@click.argument("key")
@click.option("--key-type", type=click.Choice(KEY_TYPES), default="auto", help="How KEY is to be read.")
@click.option("--timeout", type=float, default=10.0, show_default=True, help="Seconds to wait for an answer.")
@job_options
@click.pass_context
def query(context: click.Context, job: str, name: str, key: str, key_type: str, timeout: float) -> None:
    """Read the value that the queryable state NAME of JOB holds for KEY.

    KEY is read by the type of the job's keys; of composite types it is JSON, such as '["a", 1]'.
    """
    from tidemark.queryablestate.client import QueryableStateClient

    settings = settings_of(context)
    with settings.connect(job, timeout) as client:
        facts = client.query_facts(name)
        host, token, files = client.host, client.token, client.tls()
    port, tls = facts["query_port"], client_side(files)
    with QueryableStateClient(host, port, timeout=timeout, token=token, tls=tls) as queries:
        found = find_state(queries, facts["job_id"], name)
        parsed = parse_key(key, found.key_type, key_type)
        state = queries.get_kv_state(
            facts["job_id"], name, parsed, found.key_serializer(), found.descriptor()
        ).result()
    settings.output.query_result(name, parsed, plain_value(found.kind, state))
