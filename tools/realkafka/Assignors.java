import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupTargetAssignmentMemberValue;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;
import org.apache.kafka.coordinator.group.modern.TopicIds;

/**
 * Runs Kafka's assignors on groups that are read from standard input, for
 * tests/compat/test_assignors_kafka.py.
 *
 * <p>A line is a word and its arguments, with tabs between; a list has commas between. A group is:
 *
 * <ul>
 *   <li>topic NAME ID COUNT: a topic; a count of -1 hides it from the assignor
 *   <li>member ID INSTANCE RACK NAMES: a member and the topics it names; "-" is no instance or rack
 *   <li>target MEMBER ID PARTITIONS: what the record of a member's present assignment has
 *   <li>taken ID PARTITIONS: partitions of the inverted assignment
 *   <li>assign ASSIGNOR TYPE: computes, prints, and forgets the group
 * </ul>
 *
 * <p>The first line that is printed is Java's version. A group's result is "error" and the text of
 * the exception, or a line for each member: its id, then for each topic its id and its partitions;
 * and then "end". Topics and partitions are in the order of the collections.
 */
public final class Assignors {
    static final Map<String, Uuid> IDS = new HashMap<>();
    static final Map<Uuid, String> NAMES = new HashMap<>();
    static final Map<Uuid, Integer> COUNTS = new HashMap<>();
    static final List<String[]> MEMBERS = new ArrayList<>();
    static final Map<String, List<ConsumerGroupTargetAssignmentMemberValue.TopicPartition>> TARGETS =
        new HashMap<>();
    static final Map<Uuid, Map<Integer, String>> TAKEN = new HashMap<>();

    static final class Topics implements TopicIds.TopicResolver, SubscribedTopicDescriber {
        @Override
        public CoordinatorMetadataImage image() {
            return CoordinatorMetadataImage.EMPTY;
        }

        @Override
        public String name(Uuid id) {
            return NAMES.get(id);
        }

        @Override
        public Uuid id(String name) {
            return IDS.get(name);
        }

        @Override
        public void clear() {
        }

        @Override
        public int numPartitions(Uuid id) {
            return COUNTS.getOrDefault(id, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid id, int partition) {
            return Set.of();
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println(Runtime.version().feature());
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "topic":
                    IDS.put(words[1], Uuid.fromString(words[2]));
                    NAMES.put(Uuid.fromString(words[2]), words[1]);
                    COUNTS.put(Uuid.fromString(words[2]), Integer.parseInt(words[3]));
                    break;
                case "member":
                    MEMBERS.add(words);
                    break;
                case "target":
                    TARGETS.computeIfAbsent(words[1], member -> new ArrayList<>()).add(
                        new ConsumerGroupTargetAssignmentMemberValue.TopicPartition()
                            .setTopicId(Uuid.fromString(words[2]))
                            .setPartitions(numbers(words[3])));
                    break;
                case "taken":
                    for (int partition : numbers(words[2]))
                        TAKEN.computeIfAbsent(Uuid.fromString(words[1]), id -> new HashMap<>())
                            .put(partition, "");
                    break;
                case "assign":
                    assign(words[1], SubscriptionType.valueOf(words[2]), out);
                    IDS.clear();
                    NAMES.clear();
                    COUNTS.clear();
                    MEMBERS.clear();
                    TARGETS.clear();
                    TAKEN.clear();
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        out.flush();
    }

    static void assign(String assignor, SubscriptionType type, PrintStream out) {
        Topics topics = new Topics();
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        for (String[] member : MEMBERS) {
            Set<String> names = new HashSet<>(list(member[4]));
            members.put(member[1], new MemberSubscriptionAndAssignmentImpl(
                optional(member[3]), optional(member[2]), new TopicIds(names, topics),
                target(member[1])));
        }
        ConsumerGroupPartitionAssignor chosen =
            assignor.equals("range") ? new RangeAssignor() : new UniformAssignor();
        Map<String, MemberAssignment> found;
        try {
            found = chosen.assign(
                new GroupSpecImpl(Collections.unmodifiableMap(members), type, TAKEN), topics).members();
        } catch (RuntimeException error) {
            out.println("error\t" + error.getMessage());
            out.println("end");
            return;
        }
        for (Map.Entry<String, MemberAssignment> member : found.entrySet()) {
            StringBuilder line = new StringBuilder("member\t" + member.getKey());
            for (Map.Entry<Uuid, Set<Integer>> topic : member.getValue().partitions().entrySet()) {
                List<String> partitions = new ArrayList<>();
                for (int partition : topic.getValue())
                    partitions.add("" + partition);
                line.append("\t" + topic.getKey() + "\t" + String.join(",", partitions));
            }
            out.println(line);
        }
        out.println("end");
    }

    static Assignment target(String member) {
        if (!TARGETS.containsKey(member))
            return Assignment.EMPTY;
        return Assignment.fromRecord(
            new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(TARGETS.get(member)));
    }

    static Optional<String> optional(String word) {
        return word.equals("-") ? Optional.empty() : Optional.of(word);
    }

    static List<String> list(String word) {
        return word.isEmpty() ? List.of() : List.of(word.split(","));
    }

    static List<Integer> numbers(String word) {
        List<Integer> found = new ArrayList<>();
        for (String each : list(word))
            found.add(Integer.parseInt(each));
        return found;
    }
}
