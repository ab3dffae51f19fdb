import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Properties;
import java.util.zip.CRC32;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.LagInfo;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The steps of benchmarks/steps.py and gapjob.py, until standard input ends; a line there is answered with one that
 * says how things stand.
 *
 * <p>Arguments: bootstrap, application id, input topic, output topic, state directory, step (count, profile or keep),
 * then key=value settings. The store is cached, so that its changelog gets a key once a commit, as standfast's does.
 */
public final class SteadyStreams {
    private static final int BUCKETS = 12;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        for (int i = 6; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            settings.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        String step = arguments[5];
        Topology topology = new Topology();
        topology.addSource("in", new ByteArrayDeserializer(), new ByteArrayDeserializer(), arguments[2]);
        topology.addProcessor("step", () -> step(step), "in");
        topology.addStateStore(
                Stores.keyValueStoreBuilder(
                                Stores.persistentKeyValueStore("s"), Serdes.ByteArray(), Serdes.ByteArray())
                        .withCachingEnabled(),
                "step");
        topology.addSink("out", arguments[3], new ByteArraySerializer(), new ByteArraySerializer(), "step");
        try (KafkaStreams streams = new KafkaStreams(topology, settings)) {
            streams.start();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            while (input.readLine() != null) {
                System.out.println(standing(streams));
            }
        }
        System.exit(0);
    }

    /** State, number of local stores (active and standby), and the most records that one of them is behind. */
    private static String standing(KafkaStreams streams) {
        long stores = 0;
        long most = 0;
        for (Map<Integer, LagInfo> store : streams.allLocalStorePartitionLags().values()) {
            for (LagInfo each : store.values()) {
                stores++;
                most = Math.max(most, each.offsetLag());
            }
        }
        return streams.state() + " " + stores + " " + most;
    }

    private static Step step(String name) {
        return switch (name) {
            case "count" -> new Count();
            case "profile" -> new Profile();
            case "keep" -> new Keep();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private abstract static class Step implements Processor<byte[], byte[], byte[], byte[]> {
        private ProcessorContext<byte[], byte[]> context;
        protected KeyValueStore<byte[], byte[]> store;

        @Override
        public void init(ProcessorContext<byte[], byte[]> context) {
            this.context = context;
            this.store = context.getStateStore("s");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            ByteBuffer result = ByteBuffer.allocate(16);
            result.put(record.value(), 0, 8);
            result.putLong(take(record.key(), record.value()));
            context.forward(record.withValue(result.array()));
        }

        protected abstract long take(byte[] key, byte[] value);
    }

    private static final class Count extends Step {
        @Override
        protected long take(byte[] key, byte[] value) {
            byte[] before = store.get(key);
            long number = 1 + (before == null ? 0 : ByteBuffer.wrap(before).getLong());
            store.put(key, ByteBuffer.allocate(8).putLong(number).array());
            return number;
        }
    }

    private static final class Profile extends Step {
        private final CRC32 crc = new CRC32();

        @Override
        protected long take(byte[] key, byte[] value) {
            crc.reset();
            crc.update(value, 8, value.length - 8);
            long amount = crc.getValue();
            byte[] before = store.get(key);
            ByteBuffer found;
            if (before == null) {
                found = ByteBuffer.allocate(8 * (4 + BUCKETS));
                found.putLong(16, 1L << 40);
                found.putLong(24, -1);
            } else {
                // The cache hands out what it keeps.
                found = ByteBuffer.wrap(Arrays.copyOf(before, before.length));
            }
            found.putLong(0, found.getLong(0) + 1);
            found.putLong(8, found.getLong(8) + amount);
            found.putLong(16, Math.min(found.getLong(16), amount));
            found.putLong(24, Math.max(found.getLong(24), amount));
            int bucket = 8 * (4 + (int) (amount % BUCKETS));
            found.putLong(bucket, found.getLong(bucket) + 1);
            store.put(key, found.array());
            return found.getLong(8);
        }
    }

    /** As benchmarks/gapjob.py: the count, and behind it the newest value. */
    private static final class Keep extends Step {
        @Override
        protected long take(byte[] key, byte[] value) {
            byte[] before = store.get(key);
            long number = 1 + (before == null ? 0 : ByteBuffer.wrap(before).getLong());
            ByteBuffer state = ByteBuffer.allocate(value.length).putLong(number);
            store.put(key, state.put(value, 8, value.length - 8).array());
            return number;
        }
    }

    private SteadyStreams() {}
}
