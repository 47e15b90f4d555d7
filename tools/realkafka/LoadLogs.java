import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Has Kafka open partition directories as at a broker's start.
 *
 * <p>Each line of the file given is a directory, "true" after a clean shutdown, a recovery point and
 * the index interval in bytes, with tabs between. Each line printed is "=" with the log start offset
 * and the log end offset, or "!" with the class and message of the exception.
 */
public final class LoadLogs {
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", -1);
            Map<String, String> settings = new HashMap<>();
            settings.put("index.interval.bytes", parts[3]);
            settings.put("file.delete.delay.ms", "0");
            try {
                UnifiedLog log = UnifiedLog.create(
                    new File(parts[0]), new LogConfig(settings), 0L, Long.parseLong(parts[2]),
                    scheduler, new BrokerTopicStats(), Time.SYSTEM, 900_000,
                    new ProducerStateManagerConfig(86_400_000, false), 600_000,
                    new LogDirFailureChannel(1), Boolean.parseBoolean(parts[1]), Optional.empty());
                out.println("=" + log.logStartOffset() + "\t" + log.logEndOffset());
                log.close();
            } catch (Throwable refused) {
                Throwable cause = refused;
                out.println("!" + cause.getClass().getName() + "\t"
                    + String.valueOf(cause.getMessage()).replace('\n', ' '));
            }
        }
        out.flush();
        scheduler.shutdown();
    }
}
