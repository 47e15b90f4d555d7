import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;

/**
 * Has Kafka's own definitions parse values.
 *
 * <p>Each line of the file given is a table, a name and a value, with tabs between; each line printed
 * is "=" and the value as Kafka prints it, or "!" and what it complains of.
 */
public final class ConfigValues {
    private static ConfigDef field(String type) throws Exception {
        return (ConfigDef) Class.forName(type).getField("CONFIG_DEF").get(null);
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigDef> tables = new HashMap<>();
        tables.put("broker", field("org.apache.kafka.server.config.AbstractKafkaConfig"));
        tables.put("topic", org.apache.kafka.storage.internals.log.LogConfig.configDefCopy());
        tables.put("group", field("org.apache.kafka.coordinator.group.GroupConfig"));
        var client = Class.forName("org.apache.kafka.server.metrics.ClientMetricsConfigs")
            .getDeclaredMethod("configDef");
        client.setAccessible(true);
        tables.put("client", (ConfigDef) client.invoke(null));
        var parse = ConfigDef.class.getDeclaredMethod(
            "parseValue", ConfigDef.ConfigKey.class, Object.class, boolean.class);
        parse.setAccessible(true);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", -1);
            ConfigDef table = tables.get(parts[0]);
            ConfigDef.ConfigKey key = table.configKeys().get(parts[1]);
            try {
                Object value = parse.invoke(table, key, parts[2], true);
                out.println("=" + ConfigDef.convertToString(value, key.type));
            } catch (java.lang.reflect.InvocationTargetException refused) {
                out.println("!" + refused.getCause().getMessage());
            }
        }
        out.flush();
    }
}
