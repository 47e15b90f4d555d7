import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.utils.internals.BufferSupplier;
import org.apache.kafka.common.utils.internals.CloseableIterator;

/**
 * Reads the batches of files with a bound on a record, as Kafka's cleaner, its validation of a
 * produce request and a lookup of the newest timestamp do.
 *
 * <p>The arguments are the bound and the files. A file has a line for each of the three: the number
 * of records, or the offset, or the error's code and message after a tab.
 */
public final class BoundedRecords {
    private interface Reading {
        long of(MutableRecordBatch batch);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        int bound = Integer.parseInt(arguments[0]);
        BufferSupplier buffers = BufferSupplier.NO_CACHING;
        for (int i = 1; i < arguments.length; i++) {
            ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(Path.of(arguments[i])));
            MutableRecordBatch batch = MemoryRecords.readableRecords(data).batchIterator().next();
            out.println(said(batch, each -> count(each.streamingIterator(buffers, bound))));
            out.println(said(batch, each -> count(each.skipKeyValueIterator(buffers, bound))));
            out.println(said(batch, each -> each.offsetOfMaxTimestamp(bound).orElse(-1L)));
        }
        out.flush();
    }

    private static String said(MutableRecordBatch batch, Reading reading) {
        try {
            return "" + reading.of(batch);
        } catch (RuntimeException error) {
            return Errors.forException(error).name() + "\t" + error.getMessage();
        }
    }

    private static long count(CloseableIterator<Record> records) {
        try (records) {
            long found = 0;
            for (; records.hasNext(); found++) {
                records.next();
            }
            return found;
        }
    }
}
