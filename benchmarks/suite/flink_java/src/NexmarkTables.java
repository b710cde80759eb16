import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.LongAdder;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.sink.SinkV2Provider;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;
import org.apache.flink.types.RowKind;

/** The connector "nexmark": as a source the events of a kind, as a sink a checksum of whatever comes. */
public final class NexmarkTables implements DynamicTableSourceFactory, DynamicTableSinkFactory {
  private static final LongAdder ROWS = new LongAdder();
  private static final LongAdder STAYING = new LongAdder();
  private static final LongAdder CHECKSUM = new LongAdder();
  private static final Map<String, Integer> SHARES =
      Map.of("persons", 1, "auctions", 3, "bids", 46, "texts", 46);
  private static final ConfigOption<String> KIND =
      ConfigOptions.key("kind").stringType().noDefaultValue();
  private static final ConfigOption<Long> EVENTS =
      ConfigOptions.key("events").longType().noDefaultValue();

  static void reset() {
    ROWS.reset();
    STAYING.reset();
    CHECKSUM.reset();
  }

  static String found() {
    return ROWS.sum() + " " + STAYING.sum() + " " + CHECKSUM.sum();
  }

  @Override
  public String factoryIdentifier() {
    return "nexmark";
  }

  @Override
  public Set<ConfigOption<?>> requiredOptions() {
    return Set.of();
  }

  @Override
  public Set<ConfigOption<?>> optionalOptions() {
    return Set.of(KIND, EVENTS);
  }

  @Override
  public DynamicTableSource createDynamicTableSource(Context context) {
    Map<String, String> options = context.getCatalogTable().getOptions();
    String kind = options.get("kind");
    long count = Long.parseLong(options.get("events")) / 50 * SHARES.get(kind);
    return new Events(kind, count, context.getPhysicalRowDataType());
  }

  @Override
  public DynamicTableSink createDynamicTableSink(Context context) {
    return new Results(context.getPhysicalRowDataType());
  }

  /** Events of a kind, whose rows are made as Flink's planner wants them. */
  private static final class Events implements ScanTableSource {
    private final String kind;
    private final long count;
    private final DataType type;

    Events(String kind, long count, DataType type) {
      this.kind = kind;
      this.count = count;
      this.type = type;
    }

    @Override
    public ChangelogMode getChangelogMode() {
      return ChangelogMode.insertOnly();
    }

    @Override
    public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
      TypeInformation<RowData> rows = context.createTypeInformation(type);
      String name = kind;
      long limit = count;
      return new DataStreamScanProvider() {
        @Override
        public DataStream<RowData> produceDataStream(
            ProviderContext provider, StreamExecutionEnvironment environment) {
          return environment
              .fromSequence(0, limit - 1)
              .map(number -> NexmarkEvents.row(name, number, limit))
              .returns(rows);
        }

        @Override
        public boolean isBounded() {
          return true;
        }
      };
    }

    @Override
    public DynamicTableSource copy() {
      return new Events(kind, count, type);
    }

    @Override
    public String asSummaryString() {
      return kind;
    }
  }

  /** Adds up rows; those that are taken back are taken off. */
  private static final class Results implements DynamicTableSink {
    private final DataType type;

    Results(DataType type) {
      this.type = type;
    }

    @Override
    public ChangelogMode getChangelogMode(ChangelogMode asked) {
      return asked;
    }

    @Override
    public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
      List<LogicalType> columns = type.getLogicalType().getChildren();
      boolean[] texts = new boolean[columns.size()];
      for (int at = 0; at < texts.length; at++) {
        LogicalTypeRoot root = columns.get(at).getTypeRoot();
        texts[at] = root == LogicalTypeRoot.VARCHAR || root == LogicalTypeRoot.CHAR;
      }
      return SinkV2Provider.of(new AddUp(texts));
    }

    @Override
    public DynamicTableSink copy() {
      return new Results(type);
    }

    @Override
    public String asSummaryString() {
      return "checksum";
    }
  }

  /** A number per row, of all its columns in their order; of a text its length. */
  private static final class AddUp implements Sink<RowData> {
    private final boolean[] texts;

    AddUp(boolean[] texts) {
      this.texts = texts;
    }

    @Override
    public SinkWriter<RowData> createWriter(WriterInitContext context) {
      return new SinkWriter<>() {
        private long rows;
        private long staying;
        private long checksum;

        @Override
        public void write(RowData row, Context context) {
          long mixed = 0;
          for (int at = 0; at < texts.length; at++) {
            long value = texts[at] ? row.getString(at).toBytes().length : row.getLong(at);
            mixed = mixed * 1_000_003L + value;
          }
          mixed ^= mixed >>> 29;
          RowKind kind = row.getRowKind();
          int sign = kind == RowKind.INSERT || kind == RowKind.UPDATE_AFTER ? 1 : -1;
          rows++;
          staying += sign;
          checksum += sign * mixed;
        }

        @Override
        public void flush(boolean endOfInput) {
          ROWS.add(rows);
          STAYING.add(staying);
          CHECKSUM.add(checksum);
          rows = staying = checksum = 0;
        }

        @Override
        public void close() {}
      };
    }
  }
}
