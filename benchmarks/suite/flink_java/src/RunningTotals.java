import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.JobExecutionResult;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Running (count, sum) per key with a row for every row, on Flink's mini cluster: a job for every line of standard input.
 *
 * <p>A line is {@code records keys backend reuse parallelism directory}; the answer is
 * {@code RESULT milliseconds rows sum-of-counts sum-of-sums}. The rows are those of kind "random" of suite/work.py.
 */
public final class RunningTotals {
  private static final long PRIME = 2_147_483_647L;
  private static final LongAdder ROWS = new LongAdder();
  private static final LongAdder COUNTS = new LongAdder();
  private static final LongAdder SUMS = new LongAdder();

  private RunningTotals() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("READY");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.trim().split(" ");
      ROWS.reset();
      COUNTS.reset();
      SUMS.reset();
      long milliseconds =
          run(
              Long.parseLong(words[0]),
              Long.parseLong(words[1]),
              words[2],
              Boolean.parseBoolean(words[3]),
              Integer.parseInt(words[4]),
              words[5]);
      System.out.printf("RESULT %d %d %d %d%n", milliseconds, ROWS.sum(), COUNTS.sum(), SUMS.sum());
    }
  }

  private static long run(
      long records, long keys, String backend, boolean reuse, int parallelism, String directory)
      throws Exception {
    Configuration settings = new Configuration();
    settings.setString("state.backend.type", backend.equals("heap") ? "hashmap" : "rocksdb");
    settings.setString("pipeline.object-reuse", Boolean.toString(reuse));
    settings.setString("pipeline.auto-watermark-interval", "0 ms");
    settings.setString("execution.buffer-timeout.enabled", "false");
    settings.setString("taskmanager.memory.managed.size", "1g");
    settings.setString("taskmanager.memory.network.min", "256m");
    settings.setString("taskmanager.memory.network.max", "256m");
    settings.setString("state.backend.rocksdb.localdir", directory);
    settings.setString("state.backend.rocksdb.predefined-options", "FLASH_SSD_OPTIMIZED");
    settings.setString("state.backend.rocksdb.use-bloom-filter", "true");
    settings.setString("rest.port", "0");
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    environment
        .fromSequence(0, records - 1)
        .map(new MakeRow(keys, reuse))
        .keyBy(new Key(), TypeInformation.of(Long.class))
        .process(new Totals(reuse))
        .sinkTo(new AddUp());
    JobExecutionResult done = environment.execute("running totals");
    return done.getNetRuntime();
  }

  /** Row (key, value) of a number. */
  static final class MakeRow implements MapFunction<Long, Tuple2<Long, Long>> {
    private final long keys;
    private final boolean reuse;
    private final Tuple2<Long, Long> row = new Tuple2<>();

    MakeRow(long keys, boolean reuse) {
      this.keys = keys;
      this.reuse = reuse;
    }

    @Override
    public Tuple2<Long, Long> map(Long number) {
      long mixed = number * 48_271L % PRIME;
      long key = (mixed ^ (mixed >> 15)) * 69_621L % PRIME % keys;
      if (!reuse) {
        return new Tuple2<>(key, key + 1);
      }
      row.setFields(key, key + 1);
      return row;
    }
  }

  /** The key of a row. */
  static final class Key implements KeySelector<Tuple2<Long, Long>, Long> {
    @Override
    public Long getKey(Tuple2<Long, Long> row) {
      return row.f0;
    }
  }

  /** Running (count, sum); with object reuse what is in the state and what goes out is written in place. */
  static final class Totals
      extends KeyedProcessFunction<Long, Tuple2<Long, Long>, Tuple3<Long, Long, Long>> {
    private final boolean reuse;
    private final Tuple3<Long, Long, Long> output = new Tuple3<>();
    private transient ValueState<Tuple2<Long, Long>> totals;

    Totals(boolean reuse) {
      this.reuse = reuse;
    }

    @Override
    public void open(OpenContext context) {
      TypeInformation<Tuple2<Long, Long>> type = TypeInformation.of(new TypeHint<>() {});
      totals = getRuntimeContext().getState(new ValueStateDescriptor<>("totals", type));
    }

    @Override
    public void processElement(
        Tuple2<Long, Long> row, Context context, Collector<Tuple3<Long, Long, Long>> out)
        throws Exception {
      Tuple2<Long, Long> held = totals.value();
      if (held == null) {
        held = new Tuple2<>(0L, 0L);
      }
      long count = held.f0 + 1;
      long sum = held.f1 + row.f1;
      if (!reuse) {
        totals.update(new Tuple2<>(count, sum));
        out.collect(new Tuple3<>(row.f0, count, sum));
        return;
      }
      held.setFields(count, sum);
      totals.update(held);
      output.setFields(row.f0, count, sum);
      out.collect(output);
    }
  }

  /** Adds up all that comes, so that the result can be checked. */
  static final class AddUp implements Sink<Tuple3<Long, Long, Long>> {
    @Override
    public SinkWriter<Tuple3<Long, Long, Long>> createWriter(WriterInitContext context) {
      return new SinkWriter<>() {
        private long rows;
        private long counts;
        private long sums;

        @Override
        public void write(Tuple3<Long, Long, Long> row, Context context) {
          rows++;
          counts += row.f1;
          sums += row.f2;
        }

        @Override
        public void flush(boolean endOfInput) {
          ROWS.add(rows);
          COUNTS.add(counts);
          SUMS.add(sums);
          rows = counts = sums = 0;
        }

        @Override
        public void close() {}
      };
    }
  }
}
