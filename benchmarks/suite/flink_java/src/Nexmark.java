import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.functions.ScalarFunction;

/**
 * Queries of Nexmark in Flink SQL on its mini cluster: a job for every line of standard input.
 *
 * <p>A line is {@code events parallelism mini-batch query}; the answer is
 * {@code RESULT milliseconds rows rows-that-stay checksum-of-those}: rows that are taken back count negatively. {@link
 * NexmarkTables} makes the rows and adds up the results.
 */
public final class Nexmark {
  private static final String TIMES =
      ", happened AS TO_TIMESTAMP_LTZ(t, 3), clock AS PROCTIME(), WATERMARK FOR happened AS happened - INTERVAL '0.001' SECOND";
  private static final String BID = "auction BIGINT, bidder BIGINT, price BIGINT, t BIGINT, ";

  private Nexmark() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("READY");
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      String[] words = line.trim().split(" ", 4);
      NexmarkTables.reset();
      long milliseconds =
          run(
              Long.parseLong(words[0]),
              Integer.parseInt(words[1]),
              Boolean.parseBoolean(words[2]),
              words[3]);
      System.out.println("RESULT " + milliseconds + " " + NexmarkTables.found());
    }
  }

  private static long run(long events, int parallelism, boolean miniBatch, String query)
      throws Exception {
    Configuration settings = new Configuration();
    settings.setString("state.backend.type", "hashmap");
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("execution.buffer-timeout.enabled", "false");
    settings.setString("taskmanager.memory.network.min", "256m");
    settings.setString("taskmanager.memory.network.max", "256m");
    settings.setString("rest.port", "0");
    StreamExecutionEnvironment environment =
        StreamExecutionEnvironment.createLocalEnvironment(parallelism, settings);
    StreamTableEnvironment tables = StreamTableEnvironment.create(environment);
    tables.getConfig().setLocalTimeZone(java.time.ZoneOffset.UTC);
    if (miniBatch) {
      tables.getConfig().set("table.exec.mini-batch.enabled", "true");
      tables.getConfig().set("table.exec.mini-batch.allow-latency", "2 s");
      tables.getConfig().set("table.exec.mini-batch.size", "50000");
      tables.getConfig().set("table.optimizer.distinct-agg.split.enabled", "true");
    }
    tables.createTemporarySystemFunction("count_char", CountChar.class);
    create(tables, "persons", "person BIGINT, t BIGINT, state BIGINT, city BIGINT", events);
    create(
        tables,
        "auctions",
        "auction BIGINT, seller BIGINT, category BIGINT, expires BIGINT, t BIGINT",
        events);
    create(tables, "bids", BID + "channel BIGINT", events);
    create(tables, "texts", BID + "channel STRING, url STRING, extra STRING", events);
    Table result = tables.sqlQuery(query);
    Schema schema = Schema.newBuilder().fromResolvedSchema(result.getResolvedSchema()).build();
    TableDescriptor sink = TableDescriptor.forConnector("nexmark").schema(schema).build();
    return result
        .insertInto(sink)
        .execute()
        .getJobClient()
        .orElseThrow()
        .getJobExecutionResult()
        .get()
        .getNetRuntime();
  }

  private static void create(
      StreamTableEnvironment tables, String kind, String columns, long events) {
    tables.executeSql(
        String.format(
            "CREATE TEMPORARY TABLE %s (%s%s) WITH ('connector' = 'nexmark', 'kind' = '%s', 'events' = '%d')",
            kind, columns, TIMES, kind, events));
  }

  /** How often a text has a letter. */
  public static final class CountChar extends ScalarFunction {
    public long eval(String text, String letter) {
      long count = 0;
      for (int at = 0; at < text.length(); at++) {
        if (text.charAt(at) == letter.charAt(0)) {
          count++;
        }
      }
      return count;
    }
  }
}
