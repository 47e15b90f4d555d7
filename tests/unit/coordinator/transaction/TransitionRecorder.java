// Records random transitions of Kafka's TransactionMetadata, and the bytes of their records.
//
//   java -Dorg.apache.logging.log4j.level=OFF -cp "$KAFKA_JARS/*" \
//     TransitionRecorder.java SCRIPTS SEED > transitions.txt
//
// transitions.txt is of 40 scripts and the seed 7.
//
// A line is an operation, `=`, and the bytes of the record or the name of the exception.

import java.util.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.coordinator.transaction.*;
import org.apache.kafka.server.common.TransactionVersion;

public class TransitionRecorder {
    static final Random random = new Random();
    static long now = 1000;

    interface Step { TxnTransitMetadata get(); }

    public static void main(String[] args) {
        random.setSeed(Long.parseLong(args[1]));
        for (int n = 0; n < Integer.parseInt(args[0]); n++) script();
    }

    static String pick(String... words) { return words[random.nextInt(words.length)]; }

    static void script() {
        int level = random.nextInt(3);
        short epoch = (short) Integer.parseInt(pick("-1", "-1", "7", "32764", "32765", "32766"));
        TransactionMetadata it = new TransactionMetadata("id", 5, -1, -1, epoch, (short) -1, 60000,
            TransactionState.EMPTY, Set.of(), -1, now, TransactionVersion.TV_0);
        System.out.println("new version=" + level + " epoch=" + epoch + " now=" + now);
        for (int n = 0; n < 12; n++) step(it, TransactionVersion.fromFeatureLevel((short) level));
    }

    static void step(TransactionMetadata it, TransactionVersion server) {
        now += random.nextInt(100);
        long id = 100 + random.nextInt(900);
        boolean isV2 = server.featureLevel() == 2;
        TransactionVersion client = TransactionVersion.fromFeatureLevel((short) (isV2 ? 2 : 0));
        switch (it.state() == TransactionState.PREPARE_COMMIT || it.state() == TransactionState.PREPARE_ABORT
                ? "complete" : pick("epoch", "rotate", "add", "add", "add", "commit", "abort", "fence")) {
            case "epoch" -> {
                String expected = pick("none", "" + it.producerEpoch(), "" + it.lastProducerEpoch(), "3");
                Optional<Short> given = expected.equals("none")
                    ? Optional.empty() : Optional.of(Short.parseShort(expected));
                show(it, server, "epoch expected=" + expected + " now=" + now,
                    () -> it.prepareIncrementProducerEpoch(60000, given, now));
            }
            case "rotate" -> {
                boolean keeps = random.nextBoolean();
                show(it, server, "rotate id=" + id + " keeps=" + keeps + " now=" + now,
                    () -> it.prepareProducerIdRotation(id, 60000, now, keeps));
            }
            case "add" -> {
                HashSet<TopicPartition> added = new HashSet<>();
                StringJoiner names = new StringJoiner(",");
                for (int n = random.nextInt(12); n >= 0; n--) {
                    TopicPartition each = new TopicPartition(
                        pick("t", "u", "Aa", "BB", "orders", "payments"), random.nextInt(40));
                    if (added.add(each)) names.add(each.topic() + ":" + each.partition());
                }
                show(it, server, "add partitions=" + names + " now=" + now,
                    () -> it.prepareAddPartitions(added, now, client));
            }
            case "commit", "abort" -> {
                boolean commit = random.nextBoolean();
                boolean atRest = it.state().isExpirationAllowed();
                long next = isV2 && it.isProducerEpochExhausted() ? id : -1;
                show(it, server, "end commit=" + commit + " next=" + next + " now=" + now,
                    () -> it.prepareAbortOrCommit(
                        commit ? TransactionState.PREPARE_COMMIT : TransactionState.PREPARE_ABORT,
                        client, next, now, atRest));
            }
            case "fence" -> {
                if (it.state() != TransactionState.ONGOING || isV2) return;
                TxnTransitMetadata fenced = it.prepareFenceProducerEpoch();
                it.pendingState(Optional.empty());
                it.setProducerEpoch(fenced.producerEpoch());
                it.setLastProducerEpoch((short) -1);
                boolean fails = random.nextInt(4) == 0;
                if (fails) {
                    it.hasFailedEpochFence(true);
                    System.out.println("fence fails=true now=" + now + " =");
                    return;
                }
                show(it, server, "fence fails=false now=" + now,
                    () -> it.prepareAbortOrCommit(TransactionState.PREPARE_ABORT,
                        TransactionVersion.TV_0, -1, now, false));
            }
            case "complete" ->
                show(it, server, "complete now=" + now, () -> it.prepareComplete(now));
        }
    }

    static void show(TransactionMetadata it, TransactionVersion server, String operation, Step step) {
        String result;
        try {
            TxnTransitMetadata made = step.get();
            result = HexFormat.of().formatHex(TransactionLog.valueToBytes(made, server));
            it.completeTransitionTo(made);
        } catch (RuntimeException error) {
            it.pendingState(Optional.empty());
            result = error.getClass().getSimpleName();
        }
        System.out.println(operation + " = " + result);
    }
}
