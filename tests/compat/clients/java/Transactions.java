import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Sessions, each a producer with a transactional id and a consumer in a group. */
final class Transactions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PARTITION = 0;
    private static final String LAST = "last";
    private static final Duration POLL = Duration.ofMillis(500);
    private final String servers;
    private final Map<String, Session> sessions = new HashMap<>();

    private record Session(
        KafkaProducer<byte[], byte[]> producer,
        KafkaConsumer<byte[], byte[]> consumer,
        String source,
        List<ConsumerRecord<byte[], byte[]>> taken) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            // They are read again, by whom these are given to.
            taken.clear();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {}
    }

    Transactions(String servers) {
        this.servers = servers;
    }

    JsonNode open(JsonNode job) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", servers);
        configs.put("transactional.id", job.get("transactionalId").asText());
        ByteArraySerializer bytes = new ByteArraySerializer();
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(configs, bytes, bytes);
        producer.initTransactions();
        KafkaConsumer<byte[], byte[]> consumer = consumer(Map.of(
            "group.id", job.get("group").asText(),
            "auto.offset.reset", "earliest",
            "isolation.level", "read_committed",
            "session.timeout.ms", 6000,
            "heartbeat.interval.ms", 500,
            "max.poll.records", 1));
        Session opened =
            new Session(producer, consumer, job.get("topic").asText(), new ArrayList<>());
        sessions.put(job.get("session").asText(), opened);
        return JSON.nullNode();
    }

    private KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> settings) {
        Map<String, Object> configs = new HashMap<>(settings);
        configs.put("bootstrap.servers", servers);
        configs.put("enable.auto.commit", false);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(configs, bytes, bytes);
    }

    JsonNode process(JsonNode job) throws Exception {
        Session session = sessions.get(job.get("session").asText());
        if (session.consumer.subscription().isEmpty()) {
            session.consumer.subscribe(List.of(session.source), session);
        }
        List<ConsumerRecord<byte[], byte[]>> taken = take(session, job);
        ArrayNode told = JSON.createArrayNode();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        session.producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : taken) {
            told.add(Program.told(record));
            TopicPartition place = new TopicPartition(record.topic(), record.partition());
            offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
            String value = "done " + new String(record.value(), StandardCharsets.UTF_8);
            sent.add(session.producer.send(new ProducerRecord<>(
                job.get("topic").asText(), PARTITION, record.key(),
                value.getBytes(StandardCharsets.UTF_8))));
        }
        for (Future<RecordMetadata> acknowledged : sent) {
            acknowledged.get();
        }
        session.producer.sendOffsetsToTransaction(offsets, session.consumer.groupMetadata());
        end(session, job.get("end").asText());
        return told;
    }

    private static List<ConsumerRecord<byte[], byte[]>> take(Session session, JsonNode job) {
        long deadline = System.nanoTime() + job.get("timeoutMs").asLong() * 1_000_000;
        session.taken.clear();
        while (session.taken.size() < job.get("count").asInt()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the records did not come in time");
            }
            session.consumer.poll(POLL).forEach(session.taken::add);
        }
        return session.taken;
    }

    JsonNode finish(JsonNode job) {
        end(sessions.get(job.get("session").asText()), job.get("end").asText());
        return JSON.nullNode();
    }

    private static void end(Session session, String end) {
        if (end.equals("commit")) {
            session.producer.commitTransaction();
        } else if (end.equals("abort")) {
            session.producer.abortTransaction();
            var places = session.consumer.assignment();
            session.consumer.committed(places).forEach((place, committed) ->
                session.consumer.seek(place, committed == null ? 0 : committed.offset()));
        }
    }

    JsonNode close(JsonNode job) {
        Session closed = sessions.remove(job.get("session").asText());
        closed.consumer.close();
        closed.producer.close(Duration.ZERO);
        return JSON.nullNode();
    }

    JsonNode readAll(JsonNode job) {
        TopicPartition place = new TopicPartition(job.get("topic").asText(), PARTITION);
        long deadline = System.nanoTime() + job.get("timeoutMs").asLong() * 1_000_000;
        Map<String, Object> settings =
            Map.of("isolation.level", job.get("isolation").asText(), "max.poll.records", 1);
        ArrayNode read = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(settings)) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            while (System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    read.add(Program.told(record));
                    if (new String(record.value(), StandardCharsets.UTF_8).equals(LAST)) {
                        return read;
                    }
                }
            }
        }
        throw new IllegalStateException("the last record did not come in time");
    }
}
