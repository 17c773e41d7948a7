package dspgym.operator;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Timer;
import java.util.TimerTask;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.flink.autoscaler.Loop;
import org.apache.flink.autoscaler.ScalingExecutorPlugin;
import org.apache.flink.autoscaler.metrics.CollectedMetrics;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetricsEvaluatorPlugin;
import org.apache.flink.autoscaler.topology.JobTopology;
import org.apache.flink.autoscaler.topology.ShipStrategy;
import org.apache.flink.autoscaler.topology.VertexInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.plugin.PluginManager;
import org.apache.flink.core.plugin.PluginUtils;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * Runs cycles: a JSON array of them a line on stdin, an array of what they did on stdout.
 *
 * <p>Those of a line run at once, each in a thread. Plugins are found as the operator finds them:
 * by Flink's plugin manager, below FLINK_PLUGINS_DIR, with a class loader of their own.
 */
public final class LoopMain {

    private static final Map<String, Recorded> METRICS = new ConcurrentHashMap<>();

    private LoopMain() {}

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        PluginManager plugins = PluginUtils.createPluginManagerFromRootFolder(new Configuration());
        List<ScalingMetricsEvaluatorPlugin> evaluators = new ArrayList<>();
        plugins.load(ScalingMetricsEvaluatorPlugin.class).forEachRemaining(evaluators::add);
        List<ScalingExecutorPlugin<String>> executors = new ArrayList<>();
        plugins.load(ScalingExecutorPlugin.class).forEachRemaining(executors::add);
        out.println(Json.write(List.of(names(evaluators), names(executors))));
        evaluators.add(new Others.Early());
        evaluators.add(new Others.Late());
        executors.add(new Others.Adds<>());
        executors.add(new Others.Throws<>());
        Loop loop = new Loop(evaluators, executors);
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var threads = Executors.newCachedThreadPool();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            List<Future<Object>> running = new ArrayList<>();
            for (Object cycle : (List<Object>) Json.parse(line)) {
                running.add(threads.submit(() -> cycle(loop, (Map<String, Object>) cycle)));
            }
            List<Object> done = new ArrayList<>();
            for (Future<Object> one : running) {
                done.add(one.get());
            }
            out.println(Json.write(done));
        }
        threads.shutdown();
    }

    private static List<Object> names(List<?> plugins) {
        return plugins.stream()
                .map(one -> (Object) (one.getClass().getName() + " " + isOwn(one)))
                .toList();
    }

    /** Whether a plugin came by a class loader of its own. */
    private static boolean isOwn(Object plugin) {
        return plugin.getClass().getClassLoader() != LoopMain.class.getClassLoader();
    }

    private static Object cycle(Loop loop, Map<String, Object> given) {
        if (given.get("interrupted_after_ms") instanceof Number afterMs) {
            interruptAfter(afterMs.longValue());
        }
        String job = (String) given.get("job");
        Recorded metrics = METRICS.computeIfAbsent(job, name -> new Recorded(name));
        Loop.Done done = loop.run(given(given, job, metrics));
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("interrupted", Thread.interrupted());
        Map<String, Object> evaluated = new LinkedHashMap<>();
        done.evaluated.forEach(
                (vertex, values) -> {
                    Map<String, Object> one = new LinkedHashMap<>();
                    values.forEach(
                            (metric, value) ->
                                    one.put(
                                            metric.name(),
                                            List.of(
                                                    text(value.getCurrent()),
                                                    text(value.getAverage()))));
                    evaluated.put(vertex.toHexString(), one);
                });
        found.put("evaluated", evaluated);
        found.put("recommended", byHex(done.recommended));
        found.put("applied", byHex(done.applied));
        found.put("events", done.events);
        found.put("caught", done.caught);
        found.put("took_ms", done.tookMs);
        found.put("gauges", metrics.values());
        return found;
    }

    private static void interruptAfter(long ms) {
        Thread cycle = Thread.currentThread();
        if (ms == 0) {
            cycle.interrupt();
            return;
        }
        new Timer(true)
                .schedule(
                        new TimerTask() {
                            @Override
                            public void run() {
                                cycle.interrupt();
                            }
                        },
                        ms);
    }

    private static Object text(double value) {
        return Double.isFinite(value) ? (Object) value : Double.toString(value);
    }

    private static Map<String, Object> byHex(Map<JobVertexID, Integer> given) {
        Map<String, Object> found = new LinkedHashMap<>();
        given.forEach((vertex, value) -> found.put(vertex.toHexString(), value));
        return found;
    }

    @SuppressWarnings("unchecked")
    private static Loop.Given given(Map<String, Object> given, String job, Recorded metrics) {
        Configuration conf = new Configuration();
        ((Map<String, Object>) given.get("conf"))
                .forEach((key, value) -> conf.setString(key, value.toString()));
        List<VertexInfo> vertices = new ArrayList<>();
        for (Object item : (List<Object>) given.get("vertices")) {
            vertices.add(vertex((Map<String, Object>) item));
        }
        TreeMap<Instant, CollectedMetrics> history = new TreeMap<>();
        for (Object item : (List<Object>) given.get("history")) {
            Map<String, Object> sample = (Map<String, Object>) item;
            Map<JobVertexID, Map<ScalingMetric, Double>> of = new HashMap<>();
            ((Map<String, Object>) sample.get("vertices"))
                    .forEach((id, values) -> of.put(id(id), sampled((Map<String, Object>) values)));
            history.put(at(sample.get("t_s")), new CollectedMetrics(of, new HashMap<>()));
        }
        return new Loop.Given(
                job,
                conf,
                new JobTopology(vertices),
                history,
                at(given.get("running_since_s")),
                Duration.ofSeconds(((Double) given.get("restart_s")).longValue()),
                (Boolean) given.get("full"),
                metrics);
    }

    private static Map<ScalingMetric, Double> sampled(Map<String, Object> values) {
        Map<ScalingMetric, Double> found = new HashMap<>();
        values.forEach(
                (name, value) ->
                        found.put(
                                ScalingMetric.valueOf(name), Double.valueOf(value.toString())));
        return found;
    }

    @SuppressWarnings("unchecked")
    private static VertexInfo vertex(Map<String, Object> given) {
        Map<JobVertexID, ShipStrategy> inputs = new LinkedHashMap<>();
        ((Map<String, Object>) given.get("inputs"))
                .forEach((from, ship) -> inputs.put(id(from), ShipStrategy.valueOf((String) ship)));
        VertexInfo found =
                new VertexInfo(
                        id((String) given.get("id")),
                        inputs,
                        ((Double) given.get("parallelism")).intValue(),
                        ((Double) given.get("max_parallelism")).intValue(),
                        Boolean.TRUE.equals(given.get("finished")));
        found.setNumSourcePartitions(((Double) given.getOrDefault("partitions", 0.0)).intValue());
        return found;
    }

    private static JobVertexID id(String hex) {
        return JobVertexID.fromHexString(hex);
    }

    private static Instant at(Object seconds) {
        return Instant.ofEpochMilli(Math.round(1000 * (Double) seconds));
    }
}
