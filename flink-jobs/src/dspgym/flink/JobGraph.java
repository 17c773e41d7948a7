package dspgym.flink;

import java.io.IOException;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.operators.SlotSharingGroup;
import org.apache.flink.api.common.serialization.SimpleStringEncoder;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.MemorySize;
import org.apache.flink.configuration.StateBackendOptions;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.state.rocksdb.RocksDBOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/**
 * A Flink job under construction: gives every vertex its name, uid, parallelism and slot.
 *
 * <p>Chaining is off between vertices, so that each is one Flink job vertex that scales on its own.
 * Tests replace {@link #source} and the sinks by ends of their own.
 */
class JobGraph {

    /** Flink's default for small parallelisms, fixed so that savepoints fit every parallelism. */
    private static final int MAX_PARALLELISM = 128;

    /** Flink's own 100 ms per hop would be most of the latency of an idle job. */
    private static final long BUFFER_TIMEOUT_MS = 20;

    private static final String DEFAULT_GROUP = "default";

    final StreamExecutionEnvironment environment;
    private final Arguments arguments;
    final Load load;
    private final Map<String, Integer> parallelism;
    private final Map<String, Double> managedMib;
    private final Map<String, Double> cpuUs;
    private final boolean slotPerVertex;
    private final Set<String> vertices = new LinkedHashSet<>();

    JobGraph(Arguments arguments) throws IOException {
        this.arguments = arguments;
        this.load = arguments.load();
        this.parallelism = arguments.byVertex("parallelism", Integer::valueOf);
        this.managedMib = arguments.byVertex("managed-mib", Double::valueOf);
        this.cpuUs = arguments.byVertex("cpu-us", Double::valueOf);
        String sharing = arguments.text("slot-sharing", "per-vertex");
        if (!Set.of("per-vertex", DEFAULT_GROUP).contains(sharing)) {
            throw new IllegalArgumentException(
                    "--slot-sharing " + sharing + ": expected per-vertex or default");
        }
        this.slotPerVertex = sharing.equals("per-vertex");
        this.environment = environment(arguments);
    }

    private static StreamExecutionEnvironment environment(Arguments arguments) {
        Configuration options = new Configuration();
        options.set(StateBackendOptions.STATE_BACKEND, "rocksdb");
        if (arguments.flag("direct-io")) {
            options.set(RocksDBOptions.OPTIONS_FACTORY, DirectIo.class.getName());
        }
        if (arguments.has("checkpoint-interval-s")) {
            options.set(
                    CheckpointingOptions.CHECKPOINTING_INTERVAL,
                    Duration.ofSeconds(arguments.count("checkpoint-interval-s", 1)));
        }
        StreamExecutionEnvironment environment =
                StreamExecutionEnvironment.getExecutionEnvironment(options);
        environment.getConfig().setGlobalJobParameters(arguments.all());
        // Safe: no function keeps or changes a record it was given.
        environment.getConfig().enableObjectReuse();
        environment.setMaxParallelism(MAX_PARALLELISM);
        environment.setBufferTimeout(BUFFER_TIMEOUT_MS);
        return environment;
    }

    /** A source that emits `share` of the job's rate. */
    <T> SingleOutputStreamOperator<T> source(String name, double share, RecordGenerator<T> records) {
        RatedSource<T> source = new RatedSource<>(
                records,
                load.scaled(share),
                arguments.number("epoch-ms", System.currentTimeMillis()),
                arguments.count("partitions", 8),
                pacer(name));
        return vertex(
                name,
                environment.fromSource(
                        source, WatermarkStrategy.noWatermarks(), name, records.type()));
    }

    /** Makes an operator a vertex of its own. */
    <T> SingleOutputStreamOperator<T> vertex(String name, SingleOutputStreamOperator<T> operator) {
        return placed(name, name, operator).disableChaining();
    }

    /** Makes a keyed operator a vertex of its own that {@link #chainedSink} may join. */
    <T> SingleOutputStreamOperator<T> headOfChain(
            String name, SingleOutputStreamOperator<T> operator) {
        return placed(name, name, operator).startNewChain();
    }

    void sink(DataStream<?> records) {
        // Rebalanced even at equal parallelism: an edge that changed its kind when the
        // parallelism changes would be another job to every model of it.
        vertex("sink", records.rebalance().process(sinkOf(pacer("sink"))));
    }

    /** A sink that runs in the tasks of another vertex. */
    void chainedSink(String vertex, DataStream<?> records) {
        placed(vertex, "sink", records.process(sinkOf(Pacer.FREE)));
        if (arguments.has("results")) {
            written(vertex, records);
        }
    }

    /** Writes records as lines of files, which a checkpoint makes visible: each record once. */
    private <T> void written(String vertex, DataStream<T> records) {
        FileSink<T> files = FileSink.<T>forRowFormat(
                        new Path(arguments.text("results")), new SimpleStringEncoder<>())
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build();
        DataStreamSink<T> sink = records.sinkTo(files)
                .name("results")
                .uid("results")
                .setParallelism(parallelism.getOrDefault(vertex, 1));
        if (slotPerVertex) {
            sink.slotSharingGroup(slot(vertex));
        } else {
            sink.slotSharingGroup(DEFAULT_GROUP);
        }
    }

    private <T> MeasuringSink<T> sinkOf(Pacer pacer) {
        return new MeasuringSink<>(pacer, arguments.count("latency-s", 10));
    }

    /** What one record costs at a vertex. */
    Pacer pacer(String vertex) {
        return new Pacer(cpuUs.getOrDefault(vertex, 0.0));
    }

    void execute(String jobName) throws Exception {
        checkNames("parallelism", parallelism);
        checkNames("managed-mib", managedMib);
        checkNames("cpu-us", cpuUs);
        environment.execute(jobName);
    }

    private void checkNames(String key, Map<String, ?> byVertex) {
        for (String name : byVertex.keySet()) {
            if (!vertices.contains(name)) {
                throw new IllegalArgumentException(
                        "--" + key + ": there is no vertex " + name + ", only " + vertices);
            }
        }
    }

    private <T> SingleOutputStreamOperator<T> placed(
            String vertex, String name, SingleOutputStreamOperator<T> operator) {
        vertices.add(vertex);
        operator.name(name).uid(name).setParallelism(parallelism.getOrDefault(vertex, 1));
        return slotPerVertex
                ? operator.slotSharingGroup(slot(vertex))
                : operator.slotSharingGroup(DEFAULT_GROUP);
    }

    private SlotSharingGroup slot(String vertex) {
        return SlotSharingGroup.newBuilder(vertex)
                .setCpuCores(1)
                .setTaskHeapMemoryMB(arguments.count("heap-mib", 16))
                .setManagedMemory(new MemorySize(Math.round(managedMib.getOrDefault(vertex, 0.0) * (1 << 20))))
                .build();
    }
}
