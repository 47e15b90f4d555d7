import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;

/**
 * Counts words until it is stopped. The arguments are three topics, and settings as key=value.
 *
 * <p>The first topic has lines, with their numbers as keys. The second gets how often each word was
 * counted: a line that is processed again counts again. The third gets the numbers of the lines with
 * each word: a line that is processed again changes nothing.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        Arrays.stream(arguments).skip(3).map(setting -> setting.split("=", 2))
            .forEach(setting -> settings.put(setting[0], setting[1]));
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> numbersByWord = builder
            .<String, String>stream(arguments[0])
            .flatMap((number, line) ->
                Arrays.stream(line.split(" ")).map(word -> KeyValue.pair(word, number)).toList())
            .groupByKey(Grouped.as("words"));
        numbersByWord
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[1]);
        numbersByWord
            .aggregate(() -> " ", WordCount::with, Materialized.as("lines"))
            .toStream()
            .to(arguments[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    private static String with(String word, String number, String seen) {
        return seen.contains(" " + number + " ") ? seen : seen + number + " ";
    }
}
