"""The option table: every key tidemark reads, with its type, default, newer spellings and meaning.

Files, environment variables, `effective_configuration` and the reference page are fed from here. The key
is Flink's older one where both exist; the synonyms are Flink 2.x's.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from tidemark.config.modes import (
    CheckpointingMode,
    ClosureCleanerLevel,
    ExecutionMode,
    ExternalizedCheckpointRetention,
    FallbackPolicy,
    HighAvailability,
    RuntimeExecutionMode,
    StandbyPolicy,
)
from tidemark.config.option import ConfigOption, ConfigOptions
from tidemark.config.rocksdb_metrics import METRICS_PREFIX, PROPERTIES, TICKERS

if TYPE_CHECKING:
    from tidemark.config.configuration import Configuration

__all__ = ["MAX_PARALLELISM_LIMIT", "Options", "all_options", "find_option", "set_without_effect"]

MAX_PARALLELISM_LIMIT = 32768
"""Largest number of key groups, hence of subtasks: a key group is stored in two bytes."""

_key = ConfigOptions.key
_CHECKPOINTING = "execution.checkpointing."
_NOTHING_IN_FLIGHT = "at most a few frames are in flight at a barrier, so there is nothing to gain"
_NO_JAVA = "there is no Java user code"


def _keystore(prefix: str, whose: str, *older: str) -> ConfigOption[str | None]:
    return (
        _key(prefix + "keystore")
        .string_type()
        .no_default_value()
        .with_synonyms(*older)
        .with_description(
            f"PEM file with the certificate {whose}, those that lead to an authority, and its private key unless "
            f"`{prefix}key` is set."
        )
    )


def _private_key(prefix: str, *older: str) -> ConfigOption[str | None]:
    return (
        _key(prefix + "key")
        .string_type()
        .no_default_value()
        .with_synonyms(*older)
        .with_description("PEM file with the private key of that certificate; only its owner may read it.")
    )


def _key_password(prefix: str) -> ConfigOption[str | None]:
    return (
        _key(prefix + "keystore-password")
        .string_type()
        .no_default_value()
        .with_synonyms(prefix + "key-password")
        .with_description("Password of the private key, if it is encrypted.")
    )


def _truststore(prefix: str) -> ConfigOption[str | None]:
    return (
        _key(prefix + "truststore")
        .string_type()
        .no_default_value()
        .with_description("PEM file with the certificates of the authorities whose signatures are believed.")
    )


def _store_type(key: str) -> ConfigOption[str]:
    return _key(key).string_type().default_value("PEM").with_description("Only PEM is read.")


def _truststore_password(prefix: str) -> ConfigOption[str | None]:
    return (
        _key(prefix + "truststore-password")
        .string_type()
        .no_default_value()
        .with_description("Password of the truststore.")
        .no_effect("PEM files of certificates have no password")
    )


def _fingerprint(prefix: str) -> ConfigOption[str | None]:
    return (
        _key(prefix + "cert.fingerprint")
        .string_type()
        .no_default_value()
        .with_description(
            "SHA-1 or SHA-256 of the only certificate a peer may have, in hexadecimal digits; several with commas."
        )
    )


class Options:
    """Every option, by a constant that code refers to."""

    STATE_BACKEND = (
        _key("state.backend")
        .string_type()
        .no_default_value()
        .with_synonyms("state.backend.type")
        .with_description(
            "jobmanager (memory), filesystem, rocksdb, hashmap or a factory class; unset means memory."
        )
    )
    STATE_BACKEND_ASYNC = (
        _key("state.backend.async")
        .boolean_type()
        .default_value(True)
        .with_description("Write snapshots behind the stream where the backend allows a choice.")
    )
    INCREMENTAL = (
        _key("state.backend.incremental")
        .boolean_type()
        .default_value(False)
        .with_synonyms(_CHECKPOINTING + "incremental")
        .with_description(
            "Write only what changed since the last checkpoint; without effect if checkpoints are kept in the "
            "driver's memory."
        )
    )
    HEAP_MAX_CHANGES = (
        _key("state.backend.heap.incremental.max-changes")
        .int_type()
        .default_value(10)
        .with_description(
            "Incremental checkpoints of the heap: after so many files with changes a state is written whole again; "
            "earlier if they hold half as many rows as the state. 0 writes it whole each time."
        )
    )
    CHANGELOG = (
        _key("state.backend.changelog.enabled")
        .boolean_type()
        .no_default_value()
        .with_synonyms("state.changelog.enabled")
        .with_description("Write every change of state to a log, so that checkpoints are short.")
        .no_effect("there is no log of changes; state.backend.incremental writes only what changed")
    )
    LOCAL_RECOVERY = (
        _key("state.backend.local-recovery")
        .boolean_type()
        .default_value(False)
        .with_synonyms(_CHECKPOINTING + "local-backup.enabled", "execution.state-recovery.from-local")
        .with_description(
            "Keep a copy of keyed state on the worker's own disk; the memory backend ignores it."
        )
    )
    LOCAL_RECOVERY_DIRS = (
        _key("taskmanager.state.local.root-dirs")
        .string_type()
        .no_default_value()
        .with_synonyms(_CHECKPOINTING + "local-backup.dirs")
        .with_description(
            "Where local copies live, in a private directory for each user; unset means the worker's temporary "
            "directory."
        )
    )
    MEMORY_THRESHOLD = (
        _key("state.backend.fs.memory-threshold")
        .memory_type()
        .default_value("1024")
        .with_synonyms(_CHECKPOINTING + "data-inline-threshold")
        .with_description("State chunks smaller than this are stored inside the metadata file.")
    )
    WRITE_BUFFER_SIZE = (
        _key("state.backend.fs.write-buffer-size")
        .memory_type()
        .default_value("4096")
        .with_synonyms(_CHECKPOINTING + "write-buffer-size")
        .with_description("Buffer of checkpoint streams.")
        .no_effect("files are written in whole row groups")
    )
    ROCKSDB_TTL_COMPACTION_FILTER = (
        _key("state.backend.rocksdb.ttl.compaction.filter.enabled")
        .boolean_type()
        .default_value(False)
        .with_description("Allow RocksDB to drop expired entries while it compacts.")
    )
    ROCKSDB_LOCAL_DIR = (
        _key("state.backend.rocksdb.localdir")
        .string_type()
        .no_default_value()
        .with_description(
            "Where RocksDB keeps its working files; unset means the worker's temporary directory."
        )
    )
    ROCKSDB_MEMORY_PER_SLOT = (
        _key("state.backend.rocksdb.memory.fixed-per-slot")
        .memory_type()
        .no_default_value()
        .with_description("Bound on block cache and write buffers of all RocksDB stores of one slot.")
    )
    TASK_SLOTS = (
        _key("taskmanager.numberOfTaskSlots")
        .int_type()
        .default_value(1)
        .within(1)
        .with_description(
            "Slots that share the sizes of `taskmanager.memory.*`; each slot is a process of its own and gets its part."
        )
    )
    PROCESS_MEMORY = (
        _key("taskmanager.memory.process.size")
        .memory_type()
        .no_default_value()
        .with_description(
            "Memory of the slots of a task manager. A slot that comes near its part, or exceeds it, says so in the "
            "driver's log, and if it dies the failure tells. Nobody is killed for it here; slots of the local executor "
            "share one process and are not watched."
        )
    )
    MANAGED_MEMORY = (
        _key("taskmanager.memory.managed.size")
        .memory_type()
        .no_default_value()
        .with_description(
            "Part of it that RocksDB may use; unset means the fraction below, if the whole is set. "
            "`state.backend.rocksdb.memory.fixed-per-slot` goes before it."
        )
    )
    MANAGED_MEMORY_FRACTION = (
        _key("taskmanager.memory.managed.fraction")
        .float_type()
        .default_value(0.4)
        .with_description("Share of `taskmanager.memory.process.size` that RocksDB may use.")
    )
    ROCKSDB_METRICS = (
        _key("state.backend.rocksdb.metrics.enabled")
        .boolean_type()
        .default_value(False)
        .with_description(
            "Report all of RocksDB's properties as metrics, as if each were switched on; no tickers."
        )
    )
    CHECKPOINTS_DIR = (
        _key("state.checkpoints.dir")
        .string_type()
        .no_default_value()
        .with_synonyms(_CHECKPOINTING + "dir")
        .with_description("Data and metadata of checkpoints; reachable from the driver and all workers.")
    )
    FS_UMASK = (
        _key("fs.permissions.umask-mode")
        .string_type()
        .default_value("077")
        .with_description(
            "Permissions, in octal, that files and directories of checkpoints and savepoints on local disks do not "
            "get; '027' lets the group read. Directories that exist already are left as they are."
        )
    )
    S3_ENDPOINT = (
        _key("s3.endpoint")
        .string_type()
        .no_default_value()
        .with_description("Address of the S3 server, for others than Amazon's, such as 'http://minio:9000'.")
    )
    S3_REGION = (
        _key("s3.endpoint.region").string_type().no_default_value().with_description("Region of the buckets.")
    )
    S3_ACCESS_KEY = (
        _key("s3.access-key")
        .string_type()
        .no_default_value()
        .with_description(
            "Who one is at the S3 server. Without it the machine says so: environment, ~/.aws, instance role."
        )
    )
    S3_SECRET_KEY = (
        _key("s3.secret-key")
        .string_type()
        .no_default_value()
        .with_description("The secret that belongs to the access key; shown and logged nowhere.")
    )
    S3_PATH_STYLE = (
        _key("s3.path.style.access")
        .boolean_type()
        .default_value(False)
        .with_description(
            "Name the bucket in the path instead of the host name, as most servers of one's own want."
        )
    )
    WEBHDFS_ADDRESS = (
        _key("hdfs.webhdfs.address")
        .string_type()
        .no_default_value()
        .with_description(
            "Where `hdfs://` is reached over HTTP: the web server of the name node, such as 'http://namenode:9870', or "
            "a HttpFS gateway; several, with commas, for name nodes that stand in for each other. Unset means Hadoop's "
            "native client, and without one port 9870 of the host in the URI."
        )
    )
    WEBHDFS_USER = (
        _key("hdfs.webhdfs.user")
        .string_type()
        .no_default_value()
        .with_description(
            "Who one is there, on a cluster without Kerberos. Unset: whom the server takes one for."
        )
    )
    WEBHDFS_TOKEN = (
        _key("hdfs.webhdfs.token")
        .string_type()
        .no_default_value()
        .with_description(
            "A delegation token of HDFS in its URL form, which says who one is; shown and logged nowhere."
        )
    )
    NUM_RETAINED = (
        _key("state.checkpoints.num-retained")
        .int_type()
        .default_value(1)
        .with_synonyms(_CHECKPOINTING + "num-retained")
        .with_description("Completed checkpoints kept; values below 1 count as 1.")
    )
    SAVEPOINTS_DIR = (
        _key("state.savepoints.dir")
        .string_type()
        .no_default_value()
        .with_synonyms(_CHECKPOINTING + "savepoint-dir")
        .with_description("Where savepoints go when no directory is given.")
    )
    AKKA_FRAMESIZE = (
        _key("akka.framesize")
        .memory_type()
        .default_value("10485760")
        .with_description("Hard ceiling for one subtask's snapshot with the memory backend.")
    )

    CHECKPOINTING_INTERVAL = (
        _key(_CHECKPOINTING + "interval")
        .duration_type()
        .no_default_value()
        .with_description("Time between checkpoint triggers, at least 10 ms; unset, 0 or -1 means off.")
    )
    CHECKPOINTING_MODE = (
        _key(_CHECKPOINTING + "mode")
        .enum_type(CheckpointingMode)
        .default_value(CheckpointingMode.EXACTLY_ONCE)
        .with_description("EXACTLY_ONCE or AT_LEAST_ONCE.")
    )
    CHECKPOINTING_TIMEOUT = (
        _key(_CHECKPOINTING + "timeout")
        .duration_type()
        .default_value("10 min")
        .within(10)
        .with_description("An attempt older than this is aborted.")
    )
    CHECKPOINTING_MIN_PAUSE = (
        _key(_CHECKPOINTING + "min-pause")
        .duration_type()
        .default_value("0 ms")
        .within(0)
        .with_description("Least time between the end of one attempt and the start of the next.")
    )
    CHECKPOINTING_MAX_CONCURRENT = (
        _key(_CHECKPOINTING + "max-concurrent-checkpoints")
        .int_type()
        .default_value(1)
        .within(1)
        .with_description("Attempts that may run at the same time; a min pause makes it 1.")
    )
    CHECKPOINTING_TOLERABLE_FAILURES = (
        _key(_CHECKPOINTING + "tolerable-failed-checkpoints")
        .int_type()
        .default_value(0)
        .within(0)
        .with_description("Consecutive failed checkpoints before the job fails.")
    )
    CHECKPOINTING_RETENTION = (
        _key(_CHECKPOINTING + "externalized-checkpoint-retention")
        .enum_type(ExternalizedCheckpointRetention)
        .default_value(ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS)
        .with_description("What stays on disk when a job is cancelled or fails.")
    )
    CHECKPOINTING_ALLOW_FALLBACK = (
        _key(_CHECKPOINTING + "allow-fallback")
        .enum_type(FallbackPolicy)
        .default_value(FallbackPolicy.NEVER)
        .with_description(
            "What happens when output is visible that comes after the snapshot a job starts from: the newer one is "
            "damaged, or the user chose the older one. NEVER: the job fails. WITHDRAW: file sinks take back what came "
            "after the older one. DUPLICATE: the output after it comes a second time."
        )
    )
    CHECKPOINTING_ALLOW_MISSING_OUTPUT = (
        _key(_CHECKPOINTING + "allow-missing-output")
        .boolean_type()
        .default_value(False)
        .with_description(
            "Whether a job starts although a driver died while it published files of the snapshot and some of them are "
            "neither staged nor visible: somebody has fetched them, or their records are lost. If not, the job fails "
            "and names them."
        )
    )
    CHECKPOINTING_UNALIGNED = (
        _key(_CHECKPOINTING + "unaligned")
        .boolean_type()
        .default_value(False)
        .with_synonyms(_CHECKPOINTING + "unaligned.enabled")
        .with_description("Let barriers overtake records.")
        .no_effect(_NOTHING_IN_FLIGHT)
    )
    CHECKPOINTING_FORCE_UNALIGNED = (
        _key(_CHECKPOINTING + "unaligned.forced")
        .boolean_type()
        .default_value(False)
        .with_description("Let barriers overtake records in graphs with loops too.")
        .no_effect(_NOTHING_IN_FLIGHT)
    )
    CHECKPOINTING_ALIGNED_TIMEOUT = (
        _key(_CHECKPOINTING + "aligned-checkpoint-timeout")
        .duration_type()
        .default_value("0 ms")
        .within(0)
        .with_description("How long barriers may wait before they overtake records.")
        .no_effect(_NOTHING_IN_FLIGHT)
    )
    SNAPSHOT_COMPRESSION = (
        _key(_CHECKPOINTING + "snapshot-compression")
        .boolean_type()
        .default_value(False)
        .with_description("Compress full snapshots.")
    )
    CHECKPOINTING_STORAGE = (
        _key(_CHECKPOINTING + "storage")
        .string_type()
        .no_default_value()
        .with_description("jobmanager, filesystem or a factory class; unset means what the backend implies.")
    )

    RESTART_STRATEGY = (
        _key("restart-strategy")
        .string_type()
        .no_default_value()
        .with_synonyms("restart-strategy.type")
        .with_description(
            "none, fixed-delay, failure-rate or exponential-delay; unset: the last with checkpointing, else none."
        )
    )
    RESTART_FIXED_DELAY_ATTEMPTS = (
        _key("restart-strategy.fixed-delay.attempts")
        .int_type()
        .default_value(1)
        .within(0)
        .with_description("Restarts before the job fails.")
    )
    RESTART_FIXED_DELAY_DELAY = (
        _key("restart-strategy.fixed-delay.delay")
        .duration_type()
        .default_value("1 s")
        .within(0)
        .with_description("Wait before each restart.")
    )
    RESTART_FAILURE_RATE_MAX = (
        _key("restart-strategy.failure-rate.max-failures-per-interval")
        .int_type()
        .default_value(1)
        .within(1)
        .with_description("Restarts allowed inside any interval.")
    )
    RESTART_FAILURE_RATE_INTERVAL = (
        _key("restart-strategy.failure-rate.failure-rate-interval")
        .duration_type()
        .default_value("1 min")
        .within(1)
        .with_description("Length of the sliding interval in which failures are counted.")
    )
    RESTART_FAILURE_RATE_DELAY = (
        _key("restart-strategy.failure-rate.delay")
        .duration_type()
        .default_value("1 s")
        .within(0)
        .with_description("Wait before each restart.")
    )
    RESTART_EXPONENTIAL_INITIAL = (
        _key("restart-strategy.exponential-delay.initial-backoff")
        .duration_type()
        .default_value("1 s")
        .within(1)
        .with_description("Wait before the first restart.")
    )
    RESTART_EXPONENTIAL_MAX = (
        _key("restart-strategy.exponential-delay.max-backoff")
        .duration_type()
        .default_value("1 min")
        .within(1)
        .with_description("Longest wait before a restart.")
    )
    RESTART_EXPONENTIAL_MULTIPLIER = (
        _key("restart-strategy.exponential-delay.backoff-multiplier")
        .float_type()
        .default_value(1.5)
        .with_description("How much longer each wait is than the one before it.")
    )
    RESTART_EXPONENTIAL_RESET = (
        _key("restart-strategy.exponential-delay.reset-backoff-threshold")
        .duration_type()
        .default_value("1 h")
        .within(1)
        .with_description("How long the job has to run without a failure before waits begin anew.")
    )
    RESTART_EXPONENTIAL_JITTER = (
        _key("restart-strategy.exponential-delay.jitter-factor")
        .float_type()
        .default_value(0.1)
        .with_description("Share of a wait by which it is longer or shorter at random.")
    )
    RESTART_EXPONENTIAL_ATTEMPTS = (
        _key("restart-strategy.exponential-delay.attempts-before-reset-backoff")
        .int_type()
        .default_value(2147483647)
        .within(1)
        .with_description("Restarts before the job fails, unless waits began anew in between.")
    )

    QUERYABLE_STATE_ENABLE = (
        _key("queryable-state.enable")
        .boolean_type()
        .default_value(False)
        .with_description("Serve the states declared queryable.")
    )
    QUERYABLE_SERVER_PORTS = (
        _key("queryable-state.server.ports")
        .string_type()
        .default_value("9067")
        .with_description("Port, range or list for state servers; the first free one is used.")
    )
    QUERYABLE_SERVER_NETWORK_THREADS = (
        _key("queryable-state.server.network-threads")
        .int_type()
        .default_value(0)
        .within(0)
        .with_description("Threads of each slot that receive queries; 0 means as many as the parallelism.")
    )
    QUERYABLE_SERVER_QUERY_THREADS = (
        _key("queryable-state.server.query-threads")
        .int_type()
        .default_value(0)
        .within(0)
        .with_description("Threads of each slot that answer queries; 0 means as many as the parallelism.")
    )
    QUERYABLE_PROXY_PORTS = (
        _key("queryable-state.proxy.ports")
        .string_type()
        .default_value("9069")
        .with_description("Port, range or list for the proxy clients talk to.")
    )
    QUERYABLE_PROXY_NETWORK_THREADS = (
        _key("queryable-state.proxy.network-threads")
        .int_type()
        .default_value(0)
        .within(0)
        .with_description("Threads that receive requests of clients; 0 means as many as the parallelism.")
    )
    QUERYABLE_PROXY_QUERY_THREADS = (
        _key("queryable-state.proxy.query-threads")
        .int_type()
        .default_value(0)
        .within(0)
        .with_description("Threads that forward requests of clients; 0 means as many as the parallelism.")
    )

    QUERYABLE_STATISTICS = (
        _key("queryable-state.enable-statistics")
        .boolean_type()
        .default_value(False)
        .with_description("Count the requests of queryable state and how long they take, as metrics.")
    )

    SAVEPOINT_PATH = (
        _key("execution.savepoint.path")
        .string_type()
        .no_default_value()
        .with_synonyms("execution.state-recovery.path")
        .with_description("Savepoint or retained checkpoint to start from.")
    )
    SAVEPOINT_IGNORE_UNCLAIMED_STATE = (
        _key("execution.savepoint.ignore-unclaimed-state")
        .boolean_type()
        .default_value(False)
        .with_synonyms("execution.state-recovery.ignore-unclaimed-state")
        .with_description("Drop restored state that no operator of the job claims.")
    )
    RUNTIME_MODE = (
        _key("execution.runtime-mode")
        .enum_type(RuntimeExecutionMode)
        .default_value(RuntimeExecutionMode.STREAMING)
        .with_description("STREAMING, BATCH or AUTOMATIC (batch if all sources are bounded).")
    )
    EXECUTION_TARGET = (
        _key("execution.target")
        .string_type()
        .default_value("spark")
        .with_description("spark, or local to run the whole job in this process without a JVM.")
    )
    JOB_ID = (
        _key("execution.job-id")
        .string_type()
        .no_default_value()
        .with_description(
            "Id of the job for `high-availability.type`: 32 lower-case hexadecimal digits. Unset means one derived "
            "from the name given to `execute`."
        )
    )
    HIGH_AVAILABILITY = (
        _key("high-availability.type")
        .enum_type(HighAvailability)
        .default_value(HighAvailability.NONE)
        .with_synonyms("high-availability")
        .with_description(
            "FILESYSTEM: a driver that starts and finds its job in the storage directory goes on from the newest "
            "completed snapshot, and of several drivers of one job one runs it. NONE: every start is a job of its own."
        )
    )
    HIGH_AVAILABILITY_STORAGE = (
        _key("high-availability.storageDir")
        .string_type()
        .no_default_value()
        .with_synonyms("high-availability.storage-dir")
        .with_description("Where drivers of a job find each other; a path or URI that all of them reach.")
    )
    HIGH_AVAILABILITY_LEASE = (
        _key("high-availability.lease-duration")
        .duration_type()
        .default_value("15 s")
        .within(300)
        .with_description(
            "A driver that gives no sign of life for this long has lost its job to the next one. One whose process is "
            "known to be gone, on the same machine, is not waited for."
        )
    )
    HIGH_AVAILABILITY_STANDBY = (
        _key("high-availability.standby")
        .enum_type(StandbyPolicy)
        .default_value(StandbyPolicy.WAIT)
        .with_description(
            "What a driver does while another one runs its job. WAIT: until that one is gone. REFUSE: it fails."
        )
    )
    TASK_CANCELLATION_TIMEOUT = (
        _key("task.cancellation.timeout")
        .duration_type()
        .default_value("180 s")
        .within(0)
        .with_description(
            "User code that does not return this long after its job was cancelled or its attempt failed is "
            "given up: its slot is killed; in the local executor its thread is left behind, as is one of the "
            "driver that hangs in a storage. The last commits of a job may take as long again. 0 waits for ever."
        )
    )
    TASK_CANCELLATION_INTERVAL = (
        _key("task.cancellation.interval")
        .duration_type()
        .default_value("30 s")
        .within(0)
        .with_description("How often the log shows where such user code hangs until then; 0 means never.")
    )
    HEARTBEAT_INTERVAL = (
        _key("heartbeat.interval")
        .duration_type()
        .default_value("5 s")
        .within(10)
        .with_description(
            "How often the driver asks every slot whether it is alive (Flink's default is 10 s)."
        )
    )
    HEARTBEAT_TIMEOUT = (
        _key("heartbeat.timeout")
        .duration_type()
        .default_value("30 s")
        .within(50)
        .with_description(
            "A slot that does not answer for this long is killed and replaced, the task of a continuous job is lost; "
            "whoever hears nothing from the driver for this long ends itself. Longer than the interval "
            "(Flink's default is 50 s)."
        )
    )
    SPARE_SLOTS = (
        _key("slotmanager.redundant-taskmanager-num")
        .int_type()
        .default_value(0)
        .within(0)
        .with_description(
            "How many slot processes beyond those in use are kept up, so that a lost slot is replaced without waiting "
            "for an interpreter (some 80 MB each; from the first checkpoint on, and only where the driver itself "
            "starts slots: on local masters)."
        )
    )
    DRIVER_PORTS = (
        _key("jobmanager.rpc.port")
        .string_type()
        .default_value("0")
        .with_description(
            "Port, range or list (`6123-6140`) for what a driver listens on for its slots, its tasks and `tidemark` "
            "commands, on a cluster: up to three ports per job, each the first free one. 0 takes any."
        )
    )
    SLOT_PORTS = (
        _key("taskmanager.data.port")
        .string_type()
        .default_value("0")
        .with_description(
            "Port, range or list for the records that a slot takes from other machines; the first free one is used, so "
            "that a machine needs as many as it has slots. 0 takes any."
        )
    )
    REST_ENABLED = (
        _key("rest.enabled")
        .boolean_type()
        .default_value(True)
        .with_description(
            "Serve REST, metrics and the page from the driver. A job of the local executor outside of `tidemark run` "
            "gets its server once it has run for two seconds, so that short jobs and tests cost nothing."
        )
    )
    REST_PORT = (
        _key("rest.port")
        .int_type()
        .default_value(8081)
        .within(0, 65535)
        .with_description("Port of the web server; if it is taken the next free one. 0 takes any.")
    )
    REST_BIND_PORT = (
        _key("rest.bind-port")
        .string_type()
        .no_default_value()
        .with_description(
            "Port, range or list for the web server (`8081-8090`), the first free one is used. Unset means `rest.port` "
            "and those after it."
        )
    )
    REST_BIND_ADDRESS = (
        _key("rest.bind-address")
        .string_type()
        .default_value("127.0.0.1")
        .with_description("Address of the web server; any but a loopback address needs `rest.token`.")
    )
    REST_TOKEN = (
        _key("rest.token")
        .string_type()
        .no_default_value()
        .with_description(
            "What callers of the web server must know: `Authorization: Bearer <token>`, or the form at /login."
        )
    )
    ALLOWED_CLASSES = (
        _key("state.restore.allowed-classes")
        .string_type()
        .no_default_value()
        .with_description(
            "Modules and classes, with commas, that stored state may name beyond plain data; anything else is refused "
            "before it is imported. `none` allows no other; unset allows everything. For snapshots that others could "
            "have written."
        )
    )
    SSL_INTERNAL_ENABLED = (
        _key("security.ssl.internal.enabled")
        .boolean_type()
        .default_value(False)
        .with_description(
            "TLS, with certificates on both sides, for every TCP connection between driver, tasks, slots, query "
            "clients and `tidemark` commands. Unix sockets, which never leave the machine, stay as they are."
        )
    )
    SSL_INTERNAL_KEYSTORE = _keystore("security.ssl.internal.", "of every process of a job")
    SSL_INTERNAL_KEY = _private_key("security.ssl.internal.")
    SSL_INTERNAL_KEY_PASSWORD = _key_password("security.ssl.internal.")
    SSL_INTERNAL_KEYSTORE_TYPE = _store_type("security.ssl.internal.keystore-type")
    SSL_INTERNAL_TRUSTSTORE = _truststore("security.ssl.internal.")
    SSL_INTERNAL_TRUSTSTORE_TYPE = _store_type("security.ssl.internal.truststore-type")
    SSL_INTERNAL_TRUSTSTORE_PASSWORD = _truststore_password("security.ssl.internal.")
    SSL_INTERNAL_FINGERPRINT = _fingerprint("security.ssl.internal.")
    SSL_REST_ENABLED = (
        _key("security.ssl.rest.enabled")
        .boolean_type()
        .no_default_value()
        .with_description(
            "Whether the web server speaks HTTPS only; unset means: if `security.ssl.rest.keystore` is set."
        )
    )
    SSL_REST_AUTHENTICATION_ENABLED = (
        _key("security.ssl.rest.authentication-enabled")
        .boolean_type()
        .default_value(False)
        .with_description(
            "Let only those in who have a certificate that `security.ssl.rest.truststore` signed."
        )
    )
    SSL_REST_KEYSTORE = _keystore("security.ssl.rest.", "of the web server", "rest.ssl.certificate")
    SSL_REST_KEY = _private_key("security.ssl.rest.", "rest.ssl.key")
    SSL_REST_KEY_PASSWORD = _key_password("security.ssl.rest.")
    SSL_REST_KEYSTORE_TYPE = _store_type("security.ssl.rest.keystore-type")
    SSL_REST_TRUSTSTORE = _truststore("security.ssl.rest.")
    SSL_REST_TRUSTSTORE_TYPE = _store_type("security.ssl.rest.truststore-type")
    SSL_REST_TRUSTSTORE_PASSWORD = _truststore_password("security.ssl.rest.")
    SSL_REST_FINGERPRINT = _fingerprint("security.ssl.rest.")
    SSL_PROTOCOL = (
        _key("security.ssl.protocol")
        .string_type()
        .default_value("TLSv1.2")
        .with_description(
            "The oldest version of TLS that is spoken: TLSv1.2 or TLSv1.3 (Flink: the only one)."
        )
    )
    SSL_ALGORITHMS = (
        _key("security.ssl.algorithms")
        .string_type()
        .no_default_value()
        .with_description(
            "Cipher suites of TLS 1.2, with commas, by their standard or OpenSSL's names; unset means Python's choice. "
            "Those of TLS 1.3 cannot be chosen in Python; all of them are good."
        )
    )
    CHECKPOINTS_HISTORY = (
        _key("web.checkpoints.history")
        .int_type()
        .default_value(1000)
        .within(1, 100_000)
        .with_description(
            "Checkpoints and savepoints that are remembered for displays (Flink's default is 10)."
        )
    )
    HISTORY_DIR = (
        _key("history.dir")
        .string_type()
        .no_default_value()
        .with_synonyms("jobmanager.archive.fs.dir")
        .with_description(
            "Directory or URI into which ended jobs write what `tidemark web` shows of them, besides the last 50 of "
            "this machine in `$TIDEMARK_HOME`. May lie on shared storage."
        )
    )
    METRICS_PREFIX = (
        _key("metrics.prefix")
        .string_type()
        .default_value("flink")
        .with_synonyms("metrics.prometheus.prefix")
        .with_description("First word of every metric at /metrics.")
    )
    LATENCY_INTERVAL = (
        _key("metrics.latency.interval")
        .duration_type()
        .default_value("0 ms")
        .within(0)
        .with_description(
            "How often the time from reading records to having processed everything they cause is taken for the "
            "metrics `latency_*`; 0 means never. All records of an epoch have the latency of the epoch; tasks of a "
            "continuous job follow records at most every 200 ms. Time in windows and in state does not count."
        )
    )
    TRACK_STATE_LATENCY = (
        _key("state.backend.latency-track.keyed-state-enabled")
        .boolean_type()
        .default_value(False)
        .with_synonyms("state.latency-track.keyed-state-enabled")
        .with_description("Time accesses to keyed state, in nanoseconds, as metrics of the operator.")
    )
    TRACK_STATE_INTERVAL = (
        _key("state.backend.latency-track.sample-interval")
        .int_type()
        .default_value(100)
        .within(1)
        .with_synonyms("state.latency-track.sample-interval")
        .with_description("Of so many accesses to keyed state one is timed.")
    )
    LOG_LEVEL = (
        _key("log.level")
        .string_type()
        .default_value("INFO")
        .with_description(
            "Least level of what goes into the log files of a job: DEBUG, INFO, WARNING or ERROR."
        )
    )
    LOG_JSON = (
        _key("log.json")
        .boolean_type()
        .default_value(False)
        .with_description("Write the log files of a job as JSON, one object per line.")
    )
    PARALLELISM = (
        _key("parallelism.default")
        .int_type()
        .no_default_value()
        .within(1, MAX_PARALLELISM_LIMIT)
        .with_description("Parallel subtasks per operator; unset means the number of local cores.")
    )
    MAX_PARALLELISM = (
        _key("pipeline.max-parallelism")
        .int_type()
        .no_default_value()
        .within(1, MAX_PARALLELISM_LIMIT)
        .with_description("Key groups of keyed operators; unset means derived from the parallelism.")
    )
    AUTO_WATERMARK_INTERVAL = (
        _key("pipeline.auto-watermark-interval")
        .duration_type()
        .default_value("200 ms")
        .within(0)
        .with_description(
            "How often periodic watermark generators are asked in continuous execution, 0: never; in epochs they are "
            "asked once per epoch."
        )
    )
    EXECUTION_MODE = (
        _key("execution.mode")
        .enum_type(ExecutionMode)
        .default_value(ExecutionMode.AUTO)
        .with_description(
            "EPOCHS: one Spark job per epoch. CONTINUOUS: tasks that last and barriers that flow with "
            "the records, milliseconds instead of epochs; refused if a source, a sink or Spark cannot. AUTO: "
            "CONTINUOUS where everything can, else EPOCHS."
        )
    )
    GLOBAL_JOB_PARAMETERS = (
        _key("pipeline.global-job-parameters")
        .map_type()
        .default_value({})
        .with_description(
            "What functions read with `get_job_parameter` of their runtime context: `k1:v1,k2:v2`."
        )
    )
    AUTO_GENERATE_UIDS = (
        _key("pipeline.auto-generate-uids")
        .boolean_type()
        .default_value(True)
        .with_description("Give operators without a uid one from their place in the graph.")
    )
    OBJECT_REUSE = (
        _key("pipeline.object-reuse")
        .boolean_type()
        .default_value(False)
        .with_description("Hand records on without copying them.")
        .no_effect("records are never copied for their readers")
    )
    OPERATOR_CHAINING = (
        _key("pipeline.operator-chaining")
        .boolean_type()
        .default_value(True)
        .with_synonyms("pipeline.operator-chaining.enabled")
        .with_description("Run neighbouring operators in one task.")
        .no_effect("what shares a task follows from state alone; results do not depend on it")
    )
    CHAIN_DIFFERENT_MAX_PARALLELISM = (
        _key("pipeline.operator-chaining.chain-operators-with-different-max-parallelism")
        .boolean_type()
        .default_value(True)
        .with_description("Also operators whose numbers of key groups differ.")
        .no_effect("what shares a task follows from state alone; results do not depend on it")
    )
    BUFFER_TIMEOUT = (
        _key("execution.buffer-timeout")
        .duration_type()
        .no_default_value()
        .within(-1)
        .with_synonyms("execution.buffer-timeout.interval")
        .with_description(
            "How long a task waits after a small batch in continuous execution, so that what follows travels together. "
            "Unset, 0 and -1: nothing waits. The getter says 100 ms where nobody set it, as Flink's does."
        )
    )
    EPOCHS_MAX_RECORDS = (
        _key("execution.epochs.max-records-per-task")
        .int_type()
        .default_value(100_000)
        .within(1)
        .with_description(
            "How many records a task reads from a Kafka source, or a SplitSource, in one epoch at most, so that "
            "checkpoints come in a backlog, too; it never reads for longer than about a second. Fewer make epochs "
            "shorter and throughput lower. Continuous execution has no epochs."
        )
    )
    GENERIC_TYPES = (
        _key("pipeline.generic-types")
        .boolean_type()
        .default_value(True)
        .with_description("Permit types that Kryo would serialise.")
        .no_effect(_NO_JAVA)
    )
    FORCE_KRYO = (
        _key("pipeline.force-kryo")
        .boolean_type()
        .default_value(False)
        .with_description("Serialise Java objects with Kryo.")
        .no_effect(_NO_JAVA)
    )
    FORCE_AVRO = (
        _key("pipeline.force-avro")
        .boolean_type()
        .default_value(False)
        .with_description("Serialise Java objects with Avro.")
        .no_effect(_NO_JAVA)
    )
    CLOSURE_CLEANER_LEVEL = (
        _key("pipeline.closure-cleaner-level")
        .enum_type(ClosureCleanerLevel)
        .default_value(ClosureCleanerLevel.RECURSIVE)
        .with_description("How much of what Java functions drag along is removed.")
        .no_effect(_NO_JAVA)
    )
    KAFKA_CONNECTION_TIMEOUT = (
        _key("kafka.connection-timeout")
        .duration_type()
        .default_value("30 s")
        .within(1)
        .with_description("How long a Kafka source or sink waits for a broker's answer before it fails.")
    )
    KAFKA_STAGING_DIR = (
        _key("kafka.sink.staging-dir")
        .string_type()
        .no_default_value()
        .with_description(
            "Where exactly-once Kafka sinks keep records until their checkpoint is complete; driver and workers "
            "must see it. Unset means a directory in state.checkpoints.dir."
        )
    )


def rocksdb_metric(name: str) -> ConfigOption[bool]:
    """The option that switches one of RocksDB's figures on."""
    what = "ticker, counted all the time" if name in TICKERS else "property"
    return (
        _key(METRICS_PREFIX + name)
        .boolean_type()
        .default_value(False)
        .with_description(f"Report RocksDB's {what} of that name as a metric.")
    )


for _name in (*PROPERTIES, *TICKERS):
    setattr(Options, "ROCKSDB_METRICS_" + _name.replace("-", "_").upper(), rocksdb_metric(_name))


def all_options() -> tuple[ConfigOption[Any], ...]:
    """Return every option of the table in its order."""
    return tuple(value for value in vars(Options).values() if isinstance(value, ConfigOption))


@cache
def _by_spelling() -> dict[str, ConfigOption[Any]]:
    return {key: option for option in all_options() for key in option.spellings}


def set_without_effect(configuration: Configuration) -> list[ConfigOption[Any]]:
    """Return the options that change nothing and yet are set to something else than their default."""
    return [o for o in all_options() if o.ineffective is not None and configuration.get(o) != o.default]


def find_option(key: str) -> ConfigOption[Any] | None:
    """Return the option that has `key` as one of its spellings."""
    return _by_spelling().get(key)
