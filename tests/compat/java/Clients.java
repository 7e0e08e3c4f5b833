// The Java producer, consumer and admin client, as an application uses them. Each method is one test; the first argument
// is the bootstrap address, the second the method. What a test finds is printed as one line; an error ends the program.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Clients {
    static final Duration PATIENCE = Duration.ofSeconds(30);
    static String bootstrap;

    public static void main(String[] words) throws Exception {
        bootstrap = words[0];
        switch (words[1]) {
            case "codecs" -> codecs();
            case "partitions" -> partitions();
            case "order" -> order();
            case "admin" -> admin();
            case "offsets" -> offsets();
            case "recreate" -> recreate();
            default -> throw new IllegalArgumentException(words[1]);
        }
        System.out.println("passed");
    }

    static Properties properties(Map<String, String> more) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        all.putAll(more);
        return all;
    }

    static KafkaProducer<String, String> producer(Map<String, String> more) {
        return new KafkaProducer<>(properties(more), new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer() {
        Map<String, String> more = Map.of("auto.offset.reset", "earliest", "enable.auto.commit", "false");
        return new KafkaConsumer<>(properties(more), new StringDeserializer(), new StringDeserializer());
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (found.size() < count && System.nanoTime() < end) {
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        check(found.size() == count, "read " + found.size() + " of " + count);
        return found;
    }

    static void check(boolean right, String what) {
        if (!right) {
            throw new AssertionError(what);
        }
    }

    static String newTopic(Admin admin, int partitions) throws Exception {
        String name = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    // Idempotence is the default; every codec, keys, headers and timestamps come back.
    static void codecs() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of()))) {
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                String topic = newTopic(admin, 1);
                try (var producer = producer(Map.of("compression.type", codec))) {
                    for (int n = 0; n < 100; n++) {
                        var record = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + n, "k" + n, "v".repeat(n));
                        record.headers().add("h", codec.getBytes());
                        producer.send(record);
                    }
                    producer.flush();
                }
                try (var consumer = consumer()) {
                    consumer.assign(List.of(new TopicPartition(topic, 0)));
                    int n = 0;
                    for (var record : read(consumer, 100)) {
                        check(record.offset() == n && record.key().equals("k" + n), codec + " " + record);
                        check(record.timestamp() == 1_700_000_000_000L + n, codec + " " + record);
                        check(new String(record.headers().lastHeader("h").value()).equals(codec), codec);
                        n++;
                    }
                }
            }
        }
    }

    // Three partitions, one with data: a full answer must hold all that were asked for, or Java drops it.
    static void partitions() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of())); var consumer = consumer()) {
            String topic = newTopic(admin, 3);
            try (var producer = producer(Map.of())) {
                producer.send(new ProducerRecord<>(topic, 1, "k", "v")).get();
            }
            List<TopicPartition> all = new ArrayList<>();
            for (int n = 0; n < 3; n++) {
                all.add(new TopicPartition(topic, n));
            }
            consumer.assign(all);
            check(read(consumer, 1).get(0).partition() == 1, "the one with data");
            for (int n = 0; n < 5; n++) {
                consumer.poll(Duration.ofMillis(100));
            }
            check(consumer.endOffsets(all).get(all.get(1)) == 1, "end offsets");
            check(consumer.beginningOffsets(all).get(all.get(0)) == 0, "beginning offsets");
            consumer.seek(all.get(1), 0);
            check(read(consumer, 1).get(0).value().equals("v"), "again after a seek");
        }
    }

    // Five requests in flight, tiny batches: all in order, none twice.
    static void order() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of())); var consumer = consumer()) {
            String topic = newTopic(admin, 1);
            Map<String, String> small = new HashMap<>(Map.of("batch.size", "100", "linger.ms", "0"));
            small.put("max.in.flight.requests.per.connection", "5");
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (var producer = producer(small)) {
                for (int n = 0; n < 2000; n++) {
                    sent.add(producer.send(new ProducerRecord<>(topic, 0, null, "" + n)));
                }
            }
            for (int n = 0; n < 2000; n++) {
                check(sent.get(n).get().offset() == n, "the offset of record " + n);
            }
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            int n = 0;
            for (var record : read(consumer, 2000)) {
                check(record.value().equals("" + n++), "record " + record);
            }
        }
    }

    static void admin() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of()))) {
            var cluster = admin.describeCluster();
            check(!cluster.clusterId().get().isEmpty(), "cluster id");
            check(cluster.nodes().get().contains(cluster.controller().get()), "the controller is a listed node");
            String topic = newTopic(admin, 2);
            check(admin.listTopics().names().get().contains(topic), "listed");
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            check(described.partitions().size() == 2, "two partitions");
            check(admin.listTopics().namesToListings().get().get(topic).topicId().equals(described.topicId()), "ids");
            try {
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
                check(false, "a duplicate was made");
            } catch (ExecutionException error) {
                check(error.getCause() instanceof TopicExistsException, "" + error);
            }
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
            check(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size() == 4, "4");
            var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
            var change = new AlterConfigOp(new ConfigEntry("retention.ms", "12345"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all().get();
            var configs = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            check(configs.get("retention.ms").value().equals("12345"), "changed");
            check(configs.get("retention.ms").source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "source");
            check(configs.get("cleanup.policy").isDefault(), "default");
            var broker = new ConfigResource(ConfigResource.Type.BROKER, "0");
            check(admin.describeConfigs(List.of(broker)).all().get().get(broker).get("broker.id") != null, "broker");
            admin.deleteTopics(List.of(topic)).all().get();
            check(!admin.listTopics().names().get().contains(topic), "deleted");
        }
    }

    static void offsets() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of()))) {
            String topic = newTopic(admin, 1);
            var partition = new TopicPartition(topic, 0);
            long now = System.currentTimeMillis();
            try (var producer = producer(Map.of())) {
                for (long age : new long[] {5000, 1000, 3000}) {
                    producer.send(new ProducerRecord<>(topic, 0, now - age, "k", "v")).get();
                }
            }
            Map<String, Long> found = new TreeMap<>();
            Map<String, OffsetSpec> asked = Map.of(
                "earliest", OffsetSpec.earliest(),
                "latest", OffsetSpec.latest(),
                "newest", OffsetSpec.maxTimestamp(),
                "at", OffsetSpec.forTimestamp(now - 4000),
                "none", OffsetSpec.forTimestamp(now + 1));
            for (var one : asked.entrySet()) {
                var answer = admin.listOffsets(Map.of(partition, one.getValue())).partitionResult(partition).get();
                found.put(one.getKey(), answer.offset());
            }
            check(found.toString().equals("{at=1, earliest=0, latest=3, newest=1, none=-1}"), "" + found);
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(2))).all().get();
            var start = admin.listOffsets(Map.of(partition, OffsetSpec.earliest())).partitionResult(partition).get();
            check(start.offset() == 2, "the start after deleteRecords");
        }
    }

    // Leader epochs and topic ids after delete and recreate: a consumer that stays goes on with the new topic.
    static void recreate() throws Exception {
        try (Admin admin = Admin.create(properties(Map.of())); var consumer = consumer()) {
            String topic = newTopic(admin, 1);
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            try (var producer = producer(Map.of())) {
                producer.send(new ProducerRecord<>(topic, 0, null, "old")).get();
            }
            check(read(consumer, 1).get(0).value().equals("old"), "old");
            admin.deleteTopics(List.of(topic)).all().get();
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            try (var producer = producer(Map.of())) {
                producer.send(new ProducerRecord<>(topic, 0, null, "new")).get();
            }
            consumer.seek(new TopicPartition(topic, 0), 0);
            check(read(consumer, 1).get(0).value().equals("new"), "new");
        }
    }
}
