import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/**
 * Prints Kafka's table of error codes.
 *
 * <p>Each line is a code, its name, its exception's class, whether clients retry, whether they ask
 * for new metadata first, and its message, with tabs between. NONE has no class and no message: both are "null".
 */
public final class ErrorTable {
    public static void main(String[] arguments) {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (Errors error : Errors.values()) {
            var exception = error.exception();
            String type = exception == null ? "null" : exception.getClass().getName();
            boolean retriable = exception instanceof RetriableException;
            boolean stale = exception instanceof InvalidMetadataException;
            String message = exception == null ? "null" : exception.getMessage();
            out.println(String.join(
                "\t", "" + error.code(), error.name(), type, "" + retriable, "" + stale, message));
        }
        out.flush();
    }
}
