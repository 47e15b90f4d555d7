import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts words and joins the counts with a table until it is stopped. The arguments are four topics,
 * and settings as key=value.
 *
 * <p>The first topic has lines, the second the ranks of words, the third gets how often each word was
 * counted, the fourth gets the rank and the count of each word.
 */
public final class RankedCount {
    private RankedCount() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        Arrays.stream(arguments).skip(4).map(setting -> setting.split("=", 2))
            .forEach(setting -> settings.put(setting[0], setting[1]));
        StreamsBuilder builder = new StreamsBuilder();
        KTable<String, String> counts = builder
            .<String, String>stream(arguments[0])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((number, word) -> word, Grouped.as("words"))
            .aggregate(
                () -> "0",
                (word, again, count) -> String.valueOf(Long.parseLong(count) + 1),
                Materialized.as("counts"));
        counts.toStream().to(arguments[2]);
        KTable<String, String> ranks = builder.table(arguments[1], Materialized.as("ranks"));
        ranks
            .join(counts, (rank, count) -> rank + " " + count, Materialized.as("ranked"))
            .toStream()
            .to(arguments[3]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
