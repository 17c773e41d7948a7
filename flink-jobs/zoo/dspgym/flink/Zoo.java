package dspgym.flink;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.Encoder;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.streaming.api.datastream.AsyncDataStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;
import org.apache.flink.util.Collector;

/**
 * Jobs of the kinds that people run, each of which writes down its own truth.
 *
 * <p>Arguments: the kind, the folder for the truth of its operators, and pairs of {@code --name} (of
 * the job), {@code --lines true} (each sink writes its records exactly once, too) and {@code --tasks
 * OPERATOR=N,...}, where {@code Map#2} is the second operator of that name. Nothing here knows more
 * of Flink than 1.18 and 2.3 have in common.
 */
public final class Zoo {

    /** Builds a kind. */
    interface Kind {
        void build(Zoo zoo) throws Exception;
    }

    private static final Map<String, Kind> KINDS = new TreeMap<>(Map.ofEntries(
            Map.entry("chained-filter", Zoo::chainedFilter),
            Map.entry("chained-flatmap", Zoo::chainedFlatMap),
            Map.entry("join", Zoo::join),
            Map.entry("union", Zoo::union),
            Map.entry("bounded", Zoo::bounded),
            Map.entry("file-sink", Zoo::fileSink),
            Map.entry("same-names", Zoo::sameNames),
            Map.entry("unicode", Zoo::unicode),
            Map.entry("side-output", Zoo::sideOutput),
            Map.entry("broadcast", Zoo::broadcast),
            Map.entry("async", Zoo::async),
            Map.entry("window", Zoo::window),
            Map.entry("partitioners", Zoo::partitioners),
            Map.entry("no-checkpoints", Zoo::noCheckpoints),
            Map.entry("failing", Zoo::failing),
            Map.entry("sql", ZooSql::build),
            Map.entry("legacy", Zoo::legacy)));

    private static final long FAILS_AFTER_MS = 60_000;

    final StreamExecutionEnvironment environment;
    final String folder;
    private final boolean writesLines;
    private final List<SingleOutputStreamOperator<?>> sinks = new ArrayList<>();

    private Zoo(String folder, boolean writesLines) {
        Configuration options = new Configuration();
        options.setString("state.backend.type", "hashmap"); // RocksDB's own work is not paid here
        this.environment = StreamExecutionEnvironment.getExecutionEnvironment(options);
        this.folder = folder;
        this.writesLines = writesLines;
        environment.enableCheckpointing(5_000);
        environment.setBufferTimeout(500);
        environment.setParallelism(1);
        environment.setMaxParallelism(128);
    }

    public static void main(String[] args) throws Exception {
        if (!KINDS.containsKey(args[0])) {
            throw new IllegalArgumentException(args[0] + " is unknown; choose one of " + KINDS.keySet());
        }
        Map<String, String> given = pairs(args);
        Zoo zoo = new Zoo(args[1], Boolean.parseBoolean(given.get("--lines")));
        KINDS.get(args[0]).build(zoo);
        if (args[0].equals("sql") && !zoo.writesLines) {
            return; // it has submitted itself
        }
        zoo.sinks.forEach(zoo::writeLines);
        StreamGraph graph = zoo.environment.getStreamGraph();
        graph.setJobName(given.getOrDefault("--name", args[0]));
        setTasks(graph, given.getOrDefault("--tasks", ""));
        zoo.environment.execute(graph);
    }

    /** What follows the kind and the folder; Flink's own reader of it is another in 1.18. */
    private static Map<String, String> pairs(String[] args) {
        Map<String, String> found = new HashMap<>();
        for (int i = 2; i < args.length; i += 2) {
            if (!List.of("--name", "--lines", "--tasks").contains(args[i]) || i + 1 == args.length) {
                throw new IllegalArgumentException(args[i] + ": expected --name, --lines or --tasks, and a value");
            }
            found.put(args[i], args[i + 1]);
        }
        return found;
    }

    /**
     * Overrides the tasks of operators; the second one of a name is {@code NAME#2}.
     *
     * <p>An operator of a query has a number at the end of its name, another at every submission.
     */
    private static void setTasks(StreamGraph graph, String tasks) {
        Map<String, Integer> left = new HashMap<>();
        for (String one : tasks.isEmpty() ? new String[0] : tasks.split(",")) {
            int sign = one.lastIndexOf('=');
            left.put(one.substring(0, sign), Integer.valueOf(one.substring(sign + 1)));
        }
        Map<String, Integer> often = new HashMap<>();
        List<StreamNode> nodes = new ArrayList<>(graph.getStreamNodes());
        nodes.sort(Comparator.comparingInt(StreamNode::getId));
        for (StreamNode node : nodes) {
            String name = node.getOperatorName().replaceFirst("^Source: ", "").replaceFirst("\\[\\d+]$", "");
            int number = often.merge(name, 1, Integer::sum);
            Integer wanted = left.remove(number == 1 ? name : name + "#" + number);
            if (wanted != null) {
                node.setParallelism(wanted);
            }
        }
        if (!left.isEmpty()) {
            throw new IllegalArgumentException("--tasks: no operators " + left.keySet());
        }
    }

    boolean writesLines() {
        return writesLines;
    }

    /** Gives what a sink has taken in on to a file sink in its chain. */
    private <T> void writeLines(SingleOutputStreamOperator<T> sink) {
        int number = sinks.indexOf(sink);
        Path path = new Path(folder, "ledger/" + number);
        FileSink<T> files = FileSink.<T>forRowFormat(path, new Words<>())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build();
        sink.sinkTo(files).name("ledger " + number).setParallelism(sink.getParallelism());
    }

    private static void chainedFilter(Zoo zoo) {
        DataStream<Long> read = zoo.source("read", 1_000, 1.5).setParallelism(2);
        DataStream<Long> kept = zoo.paced("keep", read, 1.5, filter(100)).setParallelism(2);
        zoo.sink("sink", kept.rebalance(), 100);
    }

    private static void chainedFlatMap(Zoo zoo) {
        DataStream<Long> read = zoo.source("read", 3.2, 50);
        DataStream<Long> split = zoo.paced("split", read, 50, (number, out) -> {
            for (int i = 0; i < 10; i++) {
                out.collect(number * 10 + i);
            }
        });
        zoo.sink("sink", split.keyBy(number -> number % 64), 25).setParallelism(2);
    }

    private static void join(Zoo zoo) {
        DataStream<Long> orders = zoo.source("orders", 9.6, 40);
        DataStream<Long> payments = zoo.kafkaLike("payments", 3.2, 100);
        SingleOutputStreamOperator<Long> joined = orders.keyBy(number -> number % 50)
                .connect(payments.keyBy(number -> number % 40))
                .process(new Steps.Joining(zoo.truth("join", 60)))
                .name("join")
                .setParallelism(2);
        zoo.sink("sink", joined.rebalance(), 50);
    }

    private static void union(Zoo zoo) {
        DataStream<Long> both = zoo.source("left", 6.4, 60).union(zoo.kafkaLike("right", 3.2, 120));
        zoo.sink("sink", zoo.paced("map", both.rebalance(), 75, pass()).setParallelism(2).rebalance(), 40);
    }

    private static void bounded(Zoo zoo) {
        DataStream<Long> numbers = zoo.environment.fromSource(
                new NumberSequenceSource(1, 100), WatermarkStrategy.noWatermarks(), "table");
        DataStream<Long> loaded = zoo.paced("load", numbers, 200, pass());
        DataStream<Long> both = zoo.source("stream", 8, 50).union(loaded);
        zoo.sink("sink", zoo.paced("map", both.rebalance(), 50, pass()).rebalance(), 50);
    }

    private static void fileSink(Zoo zoo) {
        zoo.environment.disableOperatorChaining();
        FileSink<Long> files = FileSink.<Long>forRowFormat(
                        new Path(zoo.folder, "lines"), new Steps.Lines(zoo.truth("files: Writer", 80)))
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .build();
        DataStream<Long> mapped = zoo.paced("map", zoo.source("read", 8, 50), 50, pass());
        mapped.rebalance().sinkTo(files).name("files").setParallelism(2);
    }

    private static void sameNames(Zoo zoo) {
        zoo.environment.disableOperatorChaining();
        DataStream<Long> first = zoo.paced("Map", zoo.source("read", 8, 50), 40, pass());
        DataStream<Long> second = zoo.paced("Map", first.rebalance(), 80, filter(2)).setParallelism(2);
        zoo.sink("Map", second.rebalance(), 100);
    }

    private static void unicode(Zoo zoo) {
        DataStream<Long> read = zoo.source("数据源", 8, 50);
        SingleOutputStreamOperator<Long> cleaned = zoo.paced("数据清洗", read.rebalance(), 80, filter(4));
        zoo.sink("🚀", cleaned.setParallelism(2).rebalance(), 200);
    }

    private static void sideOutput(Zoo zoo) {
        SingleOutputStreamOperator<Long> routed = zoo.source("read", 8, 50)
                .rebalance()
                .process(new Steps.Routing(zoo.truth("route", 50)))
                .name("route");
        zoo.sink("main", routed.rebalance(), 60);
        zoo.sink("side", routed.getSideOutput(Steps.SIDE).rebalance(), 200);
    }

    private static void broadcast(Zoo zoo) {
        DataStream<Long> rules = zoo.source("rules", 1.6, 250);
        SingleOutputStreamOperator<Long> ruled = zoo.source("read", 8, 50)
                .rebalance()
                .connect(rules.broadcast(new MapStateDescriptor<>("rules", Types.LONG, Types.LONG)))
                .process(new Steps.Ruled(zoo.truth("apply", 60)))
                .name("apply")
                .setParallelism(2);
        zoo.sink("sink", ruled.rebalance(), 50);
    }

    private static void async(Zoo zoo) {
        SingleOutputStreamOperator<Long> asked = AsyncDataStream.unorderedWait(
                        zoo.source("read", 8, 50).rebalance(),
                        new Steps.Asking(zoo.truth("ask", 50)),
                        10,
                        TimeUnit.SECONDS)
                .name("ask");
        zoo.sink("sink", asked.rebalance(), 50);
    }

    private static void window(Zoo zoo) {
        DataStream<Long> timed = zoo.source("read", 8, 50)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Long>forBoundedOutOfOrderness(Duration.ofMillis(200))
                                .withTimestampAssigner((number, dueMs) ->
                                        Steps.oneIn(10, number) ? dueMs - 60_000 : dueMs));
        SingleOutputStreamOperator<Long> sums = timed.keyBy(number -> number % 4)
                .window(new Steps.Windows(500))
                .sideOutputLateData(Steps.SIDE)
                .aggregate(new Steps.Summing(zoo.truth("window", 60)))
                .name("window")
                .setParallelism(2);
        zoo.sink("sink", sums.rebalance(), 100);
        zoo.sink("late", sums.getSideOutput(Steps.SIDE).rebalance(), 250);
    }

    private static void partitioners(Zoo zoo) {
        zoo.environment.disableOperatorChaining();
        zoo.environment.setParallelism(2);
        DataStream<Long> read = zoo.source("read", 16, 50);
        DataStream<Long> rebalanced = zoo.paced("rebalanced", read.rebalance(), 50, pass());
        DataStream<Long> rescaled = zoo.paced("rescaled", rebalanced.rescale(), 50, filter(2));
        DataStream<Long> forwarded = zoo.paced("forwarded", rescaled.forward(), 100, pass());
        DataStream<Long> hashed = zoo.paced("hashed", forwarded.keyBy(number -> number % 64), 100, pass());
        zoo.sink("custom", hashed.partitionCustom((key, of) -> (int) (key % of), number -> number / 4), 100);
    }

    private static void noCheckpoints(Zoo zoo) {
        zoo.environment.getCheckpointConfig().disableCheckpointing();
        zoo.sink("sink", zoo.source("read", 8, 50).rebalance(), 50);
    }

    private static void failing(Zoo zoo) {
        DataStream<Long> read = zoo.source("read", 8, 50);
        zoo.sink("sink", zoo.paced("fail", read.rebalance(), 50, new Failing()).rebalance(), 50);
    }

    /** Compiled with Flink 1.x alone. */
    private static void legacy(Zoo zoo) throws ReflectiveOperationException {
        Class.forName("dspgym.flink.LegacySource")
                .getDeclaredMethod("build", Zoo.class)
                .invoke(null, zoo);
    }

    /** A source that, as a generator, counts no input. */
    private SingleOutputStreamOperator<Long> source(String name, double ratePerS, double costMs) {
        return source(name, new ZooSource(truth(name, costMs), ratePerS, false));
    }

    /** A source that counts its input, as Kafka's does. */
    private SingleOutputStreamOperator<Long> kafkaLike(String name, double ratePerS, double costMs) {
        return source(name, new ZooSource(truth(name, costMs), ratePerS, true));
    }

    private SingleOutputStreamOperator<Long> source(String name, Source<Long, ?, ?> source) {
        TypeInformation<Long> numbers = Types.LONG;
        return environment.fromSource(source, WatermarkStrategy.noWatermarks(), name, numbers);
    }

    SingleOutputStreamOperator<Long> paced(
            String name, DataStream<Long> records, double costMs, Steps.Rule rule) {
        return records.process(new Steps.Paced(truth(name, costMs), rule)).name(name);
    }

    SingleOutputStreamOperator<Long> sink(String name, DataStream<Long> records, double costMs) {
        return lines(paced(name, records, costMs, writesLines ? pass() : (number, out) -> {}));
    }

    /** Notes that what an operator gives out is to be written, if anything is. */
    <T> SingleOutputStreamOperator<T> lines(SingleOutputStreamOperator<T> sink) {
        if (writesLines) {
            sinks.add(sink);
        }
        return sink;
    }

    Truth truth(String name, double costMs) {
        return new Truth(folder, name, costMs * 1000);
    }

    private static Steps.Rule pass() {
        return (number, out) -> out.collect(number);
    }

    /** One in so many; of the records of every partition of a source. */
    private static Steps.Rule filter(int one) {
        return (number, out) -> {
            if (Steps.oneIn(one, number)) {
                out.collect(number);
            }
        };
    }

    /** A line a record, in a file that is visible once a checkpoint holds it. */
    private static final class Words<T> implements Encoder<T> {

        private static final long serialVersionUID = 1;

        @Override
        public void encode(T record, OutputStream stream) throws IOException {
            stream.write((record + "\n").getBytes(StandardCharsets.UTF_8));
        }
    }

    /** Fails every minute. */
    private static final class Failing implements Steps.Rule {

        private static final long serialVersionUID = 1;

        private transient long beganMs;

        @Override
        public void apply(long number, Collector<Long> out) {
            long nowMs = System.currentTimeMillis();
            beganMs = beganMs == 0 ? nowMs : beganMs;
            if (nowMs - beganMs > FAILS_AFTER_MS) {
                throw new IllegalStateException("this job fails every minute");
            }
            out.collect(number);
        }
    }
}
