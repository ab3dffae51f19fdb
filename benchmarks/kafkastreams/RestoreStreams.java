import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * Restores a table whose source topic is its changelog, says what that took, and then what the state is.
 *
 * <p>Arguments: bootstrap, application id, topic, partitions, state directory, then key=value settings.
 */
public final class RestoreStreams {
    private static final com.sun.management.OperatingSystemMXBean SYSTEM =
            (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] arguments) throws Exception {
        long started = ManagementFactory.getRuntimeMXBean().getStartTime();
        String bootstrap = arguments[0];
        // A new one each time: a member that has gone stays in its group until its session ends.
        String application = arguments[1] + "-" + started;
        String topic = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("application.id", application);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("topology.optimization", "reuse.ktable.source.topics");
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        for (int i = 5; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            settings.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        double cpuBefore = cpuSeconds();
        long before = System.currentTimeMillis();
        commitEnds(bootstrap, application, topic, partitions);
        // Only this benchmark needs that, and it is not charged for it.
        long asideMillis = System.currentTimeMillis() - before;
        double asideCpu = cpuSeconds() - cpuBefore;

        StreamsBuilder builder = new StreamsBuilder();
        Materialized<byte[], byte[], KeyValueStore<Bytes, byte[]>> store = Materialized.as("s");
        builder.table(topic, store.withKeySerde(Serdes.ByteArray()).withValueSerde(Serdes.ByteArray()));
        AtomicLong first = new AtomicLong();
        AtomicLong records = new AtomicLong();
        // A set, not a count: a partition that moves to another thread while it is restored is restored again.
        Set<TopicPartition> restored = ConcurrentHashMap.newKeySet();
        try (KafkaStreams streams = new KafkaStreams(builder.build(settings), settings)) {
            streams.setGlobalStateRestoreListener(
                    new StateRestoreListener() {
                        @Override
                        public void onRestoreStart(TopicPartition p, String s, long start, long end) {
                            first.compareAndSet(0, System.currentTimeMillis());
                            restored.remove(p);
                        }

                        @Override
                        public void onBatchRestored(TopicPartition p, String s, long end, long count) {
                            records.addAndGet(count);
                        }

                        @Override
                        public void onRestoreEnd(TopicPartition p, String s, long total) {
                            restored.add(p);
                        }

                        @Override
                        public void onRestoreSuspended(TopicPartition p, String s, long total) {
                            restored.remove(p);
                        }
                    });
            long begun = System.currentTimeMillis();
            streams.start();
            while (restored.size() < partitions) {
                TimeUnit.MILLISECONDS.sleep(5);
            }
            long done = System.currentTimeMillis();
            double cpu = cpuSeconds();
            long peak = peakBytes();
            double settled = settledCpuSeconds();
            while (streams.state() != KafkaStreams.State.RUNNING) {
                TimeUnit.MILLISECONDS.sleep(10);
            }
            long[] state = look(streams);
            System.out.println(
                    String.format(
                            "{\"benchmark\": 1, \"wall_seconds\": %.3f, \"from_start_seconds\": %.3f,"
                                    + " \"replay_seconds\": %.3f, \"cpu_seconds\": %.3f,"
                                    + " \"settled_cpu_seconds\": %.3f, \"peak_bytes\": %d,"
                                    + " \"records\": %d, \"keys\": %d, \"checksum\": \"%016x\"}",
                            (done - begun) / 1000.0,
                            (done - started - asideMillis) / 1000.0,
                            (done - first.get()) / 1000.0,
                            cpu - asideCpu,
                            settled - asideCpu,
                            peak,
                            records.get(),
                            state[0],
                            state[1]));
            System.out.flush();
        }
        System.exit(0);
    }

    /** A source topic that is its own changelog is restored up to what the application has committed. */
    private static void commitEnds(String bootstrap, String application, String topic, int partitions)
            throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
            for (int i = 0; i < partitions; i++) {
                asked.put(new TopicPartition(topic, i), OffsetSpec.latest());
            }
            Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
            for (Map.Entry<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> each :
                    admin.listOffsets(asked).all().get().entrySet()) {
                ends.put(each.getKey(), new OffsetAndMetadata(each.getValue().offset()));
            }
            admin.alterConsumerGroupOffsets(application, ends).all().get();
        }
    }

    private static long[] look(KafkaStreams streams) {
        ReadOnlyKeyValueStore<byte[], byte[]> store =
                streams.store(StoreQueryParameters.fromNameAndType("s", QueryableStoreTypes.keyValueStore()));
        long keys = 0;
        long sum = 0;
        CRC32 crc = new CRC32();
        try (KeyValueIterator<byte[], byte[]> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<byte[], byte[]> each = all.next();
                crc.reset();
                crc.update(each.key);
                crc.update(each.value);
                sum += crc.getValue();
                keys++;
            }
        }
        return new long[] {keys, sum};
    }

    private static double cpuSeconds() {
        return SYSTEM.getProcessCpuTime() / 1e9;
    }

    private static long peakBytes() throws Exception {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.trim().split("\\s+")[1]) << 10;
            }
        }
        return 0;
    }

    /** CPU seconds once the background has ended its work, by the same rule as benchmarks/meter.py. */
    private static double settledCpuSeconds() throws InterruptedException {
        double before = cpuSeconds();
        long giveUp = System.nanoTime() + TimeUnit.SECONDS.toNanos(120);
        int quiet = 0;
        while (quiet < 2 && System.nanoTime() < giveUp) {
            TimeUnit.MILLISECONDS.sleep(500);
            double now = cpuSeconds();
            quiet = now - before < 0.15 * 0.5 ? quiet + 1 : 0;
            before = now;
        }
        return before;
    }

    private RestoreStreams() {}
}
