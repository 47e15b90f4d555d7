import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own clients behind jobs in JSON: a line in, a line out. The argument is the broker. */
public final class Program {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int PARTITION = 0;
    private static final int FETCH_WAIT_MS = 100;
    private final String servers;
    private final Transactions transactions;

    private Program(String servers) {
        this.servers = servers;
        transactions = new Transactions(servers);
    }

    public static void main(String[] arguments) throws Exception {
        Program program = new Program(arguments[0]);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // what a library prints is no answer
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", program.run(JSON.readTree(line)));
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                answer.put("error", kind(cause)).put("message", cause.toString());
            }
            out.print(JSON.writeValueAsString(answer) + "\n");
            out.flush();
        }
    }

    private static String kind(Throwable cause) {
        if (cause instanceof InvalidOffsetException) {
            return "no_offset";
        }
        if (cause instanceof ProducerFencedException
            || cause instanceof InvalidProducerEpochException) {
            return "fenced";
        }
        return cause instanceof TopicExistsException ? "topic_exists" : "other";
    }

    private JsonNode run(JsonNode job) throws Exception {
        return switch (job.get("op").asText()) {
            case "produce" -> produce(job);
            case "consume" -> consume(job);
            case "consume_group" -> consumeGroup(job);
            case "create_topic" -> createTopic(job);
            case "describe_topic" -> describeTopic(job);
            case "delete_topic" -> deleteTopic(job);
            case "open_session" -> transactions.open(job);
            case "process" -> transactions.process(job);
            case "finish" -> transactions.finish(job);
            case "close_session" -> transactions.close(job);
            case "read_all" -> transactions.readAll(job);
            default -> throw new IllegalArgumentException("no such op: " + job.get("op"));
        };
    }

    private JsonNode produce(JsonNode job) throws Exception {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", servers);
        configs.put("acks", "all");
        configs.put("linger.ms", 5);
        configs.put("compression.type", job.get("codec").asText());
        configs.put("enable.idempotence", job.get("idempotent").asBoolean());
        configs.put("max.request.size", job.get("maxBytes").asInt());
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(configs, bytes, bytes)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode told : job.get("records")) {
                ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(
                        job.get("topic").asText(),
                        PARTITION,
                        told.get("timestamp").isNull() ? null : told.get("timestamp").asLong(),
                        told.get("key").binaryValue(),
                        told.get("value").binaryValue());
                for (JsonNode header : told.get("headers")) {
                    record.headers().add(header.get(0).asText(), header.get(1).binaryValue());
                }
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> acknowledged : sent) {
                acknowledged.get();
            }
        }
        return JSON.nullNode();
    }

    private KafkaConsumer<byte[], byte[]> consumer(JsonNode job) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", servers);
        configs.put("auto.offset.reset", job.get("reset").asText());
        configs.put("enable.auto.commit", false);
        configs.put("fetch.max.wait.ms", FETCH_WAIT_MS);
        configs.put("max.poll.records", job.get("count").asInt());
        if (job.hasNonNull("group")) {
            configs.put("group.id", job.get("group").asText());
            job.get("settings").properties()
                .forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        }
        if (job.hasNonNull("fetchBytes")) {
            configs.put("max.partition.fetch.bytes", job.get("fetchBytes").asInt());
            configs.put("fetch.max.bytes", job.get("fetchBytes").asInt());
        }
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        return new KafkaConsumer<>(configs, bytes, bytes);
    }

    private JsonNode consume(JsonNode job) {
        TopicPartition place = new TopicPartition(job.get("topic").asText(), PARTITION);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(job)) {
            consumer.assign(List.of(place));
            switch (job.get("start").asText()) {
                case "earliest" -> consumer.seekToBeginning(List.of(place));
                case "latest" -> consumer.seekToEnd(List.of(place));
                case "offset" -> consumer.seek(place, job.get("at").asLong());
                default -> {
                    Map<TopicPartition, Long> asked = Map.of(place, job.get("at").asLong());
                    OffsetAndTimestamp found = consumer.offsetsForTimes(asked).get(place);
                    consumer.seek(place, found.offset());
                }
            }
            return read(consumer, job);
        }
    }

    private JsonNode consumeGroup(JsonNode job) {
        String topic = job.get("topic").asText();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(job)) {
            consumer.subscribe(List.of(topic));
            ArrayNode read = read(consumer, job);
            if (!read.isEmpty()) {
                JsonNode last = read.get(read.size() - 1);
                TopicPartition place = new TopicPartition(topic, last.get("partition").asInt());
                long next = last.get("offset").asLong() + 1;
                consumer.commitSync(Map.of(place, new OffsetAndMetadata(next)));
            }
            return read;
        }
    }

    private static ArrayNode read(KafkaConsumer<byte[], byte[]> consumer, JsonNode job) {
        ArrayNode read = JSON.createArrayNode();
        int count = job.get("count").asInt();
        long deadline = System.nanoTime() + job.get("timeoutMs").asLong() * 1_000_000;
        while (read.size() < count && System.nanoTime() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                if (read.size() < count) {
                    read.add(told(record));
                }
            }
        }
        return read;
    }

    static ObjectNode told(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode told = JSON.createObjectNode();
        told.put("key", record.key());
        told.put("value", record.value());
        told.put("timestamp", record.timestamp());
        told.put("offset", record.offset());
        told.put("partition", record.partition());
        ArrayNode headers = told.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return told;
    }

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", servers));
    }

    private JsonNode createTopic(JsonNode job) throws Exception {
        Map<String, String> configs = new HashMap<>();
        job.get("configs").properties()
            .forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        NewTopic topic =
            new NewTopic(job.get("topic").asText(), job.get("partitions").asInt(), (short) 1);
        try (Admin admin = admin()) {
            admin.createTopics(List.of(topic.configs(configs))).all().get();
        }
        return JSON.nullNode();
    }

    private JsonNode describeTopic(JsonNode job) throws Exception {
        String topic = job.get("topic").asText();
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ObjectNode answer = JSON.createObjectNode();
        try (Admin admin = admin()) {
            int partitions = admin.describeTopics(List.of(topic)).allTopicNames().get()
                .get(topic).partitions().size();
            answer.put("partitions", partitions);
            Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            ObjectNode configs = answer.putObject("configs");
            config.entries().forEach(entry -> configs.put(entry.name(), entry.value()));
        }
        return answer;
    }

    private JsonNode deleteTopic(JsonNode job) throws Exception {
        try (Admin admin = admin()) {
            admin.deleteTopics(List.of(job.get("topic").asText())).all().get();
        }
        return JSON.nullNode();
    }
}
