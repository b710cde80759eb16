import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;

/** The events of Nexmark from their numbers: the same rows as suite/nexmark_events.py. */
final class NexmarkEvents {
  private static final int SPLITS = 2;
  private static final int CHANNELS = 10_004;
  private static final int EXTRAS = 1_024;
  private static final long PRIME = 2_147_483_647L;
  private static final long FIRST = 1_000L;
  private static final long[] SCALES = {1, 10, 100, 1_000, 10_000, 100_000};
  private static final String[] HOT_CHANNELS = {"Apple", "Google", "Facebook", "Baidu"};

  private NexmarkEvents() {}

  static RowData row(String kind, long number, long count) {
    long each = count / SPLITS;
    long place = number % each * SPLITS + number / each;
    switch (kind) {
      case "persons":
        return person(event(place, 1, 0));
      case "auctions":
        return auction(event(place, 3, 1));
      case "bids":
        return bid(event(place, 46, 4), false);
      case "texts":
        return bid(event(place, 46, 4), true);
      default:
        throw new IllegalArgumentException(kind);
    }
  }

  private static long event(long place, long share, long behind) {
    return place / share * 50 + behind + place % share;
  }

  private static long random(long event, long salt, long below) {
    long mixed = (event * 48_271L + salt * 7_919L) % PRIME;
    mixed = (mixed ^ (mixed >> 15)) * 69_621L % PRIME;
    return (mixed ^ (mixed >> 13)) * 48_271L % PRIME % below;
  }

  private static long activePerson(long event) {
    long group = event / 50;
    return group - random(event, 1, Math.min(group + 1, 1_000));
  }

  private static RowData person(long event) {
    return GenericRowData.of(
        FIRST + event / 50, event / 10, random(event, 9, 6), random(event, 10, 10));
  }

  private static RowData auction(long event) {
    long group = event / 50;
    long seller = random(event, 2, 4) > 0 ? group / 100 * 100 : activePerson(event);
    return GenericRowData.of(
        FIRST + group * 3 + event % 50 - 1,
        FIRST + seller,
        10 + random(event, 3, 5),
        event / 10 + 1 + random(event, 4, 332),
        event / 10);
  }

  private static RowData bid(long event, boolean texts) {
    long group = event / 50;
    long last = group * 3 + 2;
    long auction =
        random(event, 6, 2) > 0
            ? last / 100 * 100
            : last - random(event, 5, Math.min(last + 1, 100));
    long bidder = random(event, 7, 4) > 0 ? group / 100 * 100 + 1 : activePerson(event);
    long scale = SCALES[(int) random(event, 8, 6)];
    long price = 100 * scale + random(event, 11, 900 * scale);
    long channel =
        random(event, 12, 2) > 0 ? random(event, 13, 4) : 4 + random(event, 14, CHANNELS - 4);
    if (!texts) {
      return GenericRowData.of(FIRST + auction, FIRST + bidder, price, event / 10, channel);
    }
    return GenericRowData.of(
        FIRST + auction,
        FIRST + bidder,
        price,
        event / 10,
        Texts.CHANNEL[(int) channel],
        Texts.URL[(int) channel],
        Texts.EXTRA[(int) random(event, 15, EXTRAS)]);
  }

  /** All texts there are, made once. */
  private static final class Texts {
    static final StringData[] CHANNEL = new StringData[CHANNELS];
    static final StringData[] URL = new StringData[CHANNELS];
    static final StringData[] EXTRA = new StringData[EXTRAS];

    static {
      for (int channel = 0; channel < CHANNELS; channel++) {
        String name = channel < 4 ? HOT_CHANNELS[channel] : "channel-" + channel;
        String path =
            String.format(
                "https://www.nexmark.com/d%d/e%d/f%d/item.htm?query=1",
                channel % 7, channel % 97, channel);
        CHANNEL[channel] = StringData.fromString(name);
        URL[channel] =
            StringData.fromString(channel < 4 ? path : path + "&channel_id=" + channel);
      }
      for (int number = 0; number < EXTRAS; number++) {
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < 60 + number % 40; at++) {
          text.append((char) (97 + (number * 31 + at * at * 7) % 26));
        }
        EXTRA[number] = StringData.fromString(text.toString());
      }
    }
  }
}
