package org.apache.flink.autoscaler;

import static org.apache.flink.autoscaler.metrics.ScalingMetric.*;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.flink.autoscaler.metrics.CollectedMetricHistory;
import org.apache.flink.autoscaler.metrics.CollectedMetrics;
import org.apache.flink.autoscaler.metrics.EvaluatedMetrics;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetricsEvaluatorPlugin;
import org.apache.flink.autoscaler.topology.JobTopology;
import org.apache.flink.autoscaler.topology.ShipStrategy;
import org.apache.flink.autoscaler.topology.VertexInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * One cycle of an autoscaler that calls plugins in the operator's order and by its rules.
 *
 * <p>It keeps nothing between cycles: no history of rescales, and a scale-down with an interval is
 * held.
 */
public final class Loop {

    private static final String PREFIX = "job.autoscaler.";

    private static final boolean IS_CHAIN =
            Arrays.stream(ScalingMetricsEvaluatorPlugin.class.getMethods())
                    .anyMatch(method -> method.getName().equals("priority"));

    private final Collection<ScalingMetricsEvaluatorPlugin> evaluators;
    private final Collection<ScalingExecutorPlugin<String>> executors;

    public Loop(
            Collection<ScalingMetricsEvaluatorPlugin> evaluators,
            Collection<ScalingExecutorPlugin<String>> executors) {
        this.evaluators = evaluators;
        this.executors = executors;
    }

    /** What a cycle is given. */
    public record Given(
            String job,
            Configuration conf,
            JobTopology graph,
            SortedMap<Instant, CollectedMetrics> history,
            Instant runningSince,
            Duration restart,
            boolean isFull,
            MetricGroup metrics) {}

    /** What a cycle did. */
    public static final class Done {
        public Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> evaluated =
                new HashMap<>();
        public final Map<JobVertexID, Integer> recommended = new LinkedHashMap<>();
        public final Map<JobVertexID, Integer> applied = new LinkedHashMap<>();
        public final List<String> events = new ArrayList<>();
        public final List<String> caught = new ArrayList<>();
        public final List<Double> tookMs = new ArrayList<>();
    }

    /** Collected metrics in, parallelism out; an exception ends the cycle as AutoscalerError. */
    public Done run(Given given) {
        Done done = new Done();
        try {
            JobAutoScalerContext<String> context =
                    new JobAutoScalerContext<>(
                            given.job(), null, null, given.conf(), given.metrics());
            var collected =
                    new CollectedMetricHistory(
                            given.graph(), given.history(), given.runningSince());
            collected.setFullyCollected(given.isFull());
            context.getScalingCycleState().collectedMetrics = collected;
            context.getScalingCycleState().restartTime = given.restart();
            evaluate(given, context, done);
            context.getScalingCycleState().evaluatedMetrics =
                    new EvaluatedMetrics(done.evaluated, new HashMap<>());
            if (given.isFull()) {
                execute(given, context, done);
            }
        } catch (Throwable error) {
            done.events.add("AutoscalerError: " + error);
        }
        return done;
    }

    private void evaluate(Given given, JobAutoScalerContext<String> context, Done done) {
        boolean backlog = isBacklog(given);
        var upstream = Collections.unmodifiableMap(done.evaluated);
        Map<ScalingMetricsEvaluatorPlugin.Context<String>, ScalingMetricsEvaluatorPlugin> plugins =
                new LinkedHashMap<>();
        for (var chosen : evaluators(given.conf())) {
            var own = stripped(given.conf(), "metrics.custom-evaluator." + chosen.getKey() + ".");
            plugins.put(
                    new ScalingMetricsEvaluatorPlugin.Context<>(context, own, upstream, backlog),
                    chosen.getValue());
        }
        for (JobVertexID vertex : given.graph().getVerticesInTopologicalOrder()) {
            var found = builtIn(given, vertex, done.evaluated, backlog);
            plugins.forEach((own, plugin) -> ask(plugin, own, vertex, found, done));
            done.evaluated.put(vertex, found);
        }
    }

    /** An evaluator sees what those before it have made; one that throws leaves that as it is. */
    private static void ask(
            ScalingMetricsEvaluatorPlugin plugin,
            ScalingMetricsEvaluatorPlugin.Context<String> own,
            JobVertexID vertex,
            Map<ScalingMetric, EvaluatedScalingMetric> found,
            Done done) {
        long begunNs = System.nanoTime();
        try {
            plugin.evaluateVertexMetrics(vertex, Collections.unmodifiableMap(found), own)
                    .forEach((metric, value) -> found.merge(metric, value, Loop::merged));
        } catch (Exception error) {
            done.caught.add(error.toString());
        }
        done.tookMs.add((System.nanoTime() - begunNs) / 1e6);
    }

    /** Of an operator whose interface has priorities all, by these; of any other the first alone. */
    private List<Map.Entry<String, ScalingMetricsEvaluatorPlugin>> evaluators(Configuration conf) {
        List<Map.Entry<String, ScalingMetricsEvaluatorPlugin>> found = new ArrayList<>();
        List<String> names = List.of(text(conf, "metrics.custom-evaluators", "").split(";"));
        for (String name : IS_CHAIN ? new LinkedHashSet<>(names) : names.subList(0, 1)) {
            String type = text(conf, "metrics.custom-evaluator." + name + ".class", "");
            evaluators.stream()
                    .filter(one -> one.getClass().getName().equals(type))
                    .findFirst()
                    .ifPresent(one -> found.add(Map.entry(name, one)));
        }
        if (IS_CHAIN) {
            found.sort(Comparator.comparingInt(one -> one.getValue().priority()));
        }
        return found;
    }

    private static EvaluatedScalingMetric merged(
            EvaluatedScalingMetric actual, EvaluatedScalingMetric incoming) {
        double current = incoming.getCurrent();
        double average = incoming.getAverage();
        return new EvaluatedScalingMetric(
                Double.isNaN(current) ? actual.getCurrent() : current,
                Double.isNaN(average) ? actual.getAverage() : average);
    }

    private static Map<ScalingMetric, EvaluatedScalingMetric> builtIn(
            Given given,
            JobVertexID vertex,
            Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> upstream,
            boolean backlog) {
        Map<ScalingMetric, EvaluatedScalingMetric> found = new HashMap<>();
        VertexInfo info = given.graph().get(vertex);
        double in = rate(given, vertex, NUM_RECORDS_IN);
        double target = 0;
        double catchUp = 0;
        double catchUpS = seconds(given.conf(), "catch-up.duration", 1800);
        if (info.getInputs().isEmpty()) {
            target = Math.max(0, in + rate(given, vertex, LAG));
            if (Double.isNaN(target)) {
                throw new IllegalStateException("no ingestion rate");
            }
            catchUp = catchUpS == 0 ? 0 : last(given, vertex, LAG) / catchUpS;
        }
        for (JobVertexID from : info.getInputs().keySet()) {
            double sent = rate(given, from, NUM_RECORDS_IN);
            double edge =
                    info.getInputs().size() == 1 ? in : rate(given, from, NUM_RECORDS_OUT);
            double ratio = sent > 0 && edge > 0 ? edge / sent : 0;
            target += upstream.get(from).get(TARGET_DATA_RATE).getAverage() * ratio;
            catchUp += upstream.get(from).get(CATCH_UP_DATA_RATE).getCurrent() * ratio;
        }
        double load = mean(given, vertex, LOAD);
        double rate = in == 0 || load == 0 ? Double.POSITIVE_INFINITY : in / load;
        found.put(TARGET_DATA_RATE, EvaluatedScalingMetric.avg(target));
        found.put(CATCH_UP_DATA_RATE, EvaluatedScalingMetric.of(catchUp));
        found.put(TRUE_PROCESSING_RATE, EvaluatedScalingMetric.avg(rate));
        found.put(LOAD, EvaluatedScalingMetric.avg(load));
        found.put(PARALLELISM, EvaluatedScalingMetric.of(info.getParallelism()));
        found.put(MAX_PARALLELISM, EvaluatedScalingMetric.of(info.getMaxParallelism()));
        found.put(NUM_SOURCE_PARTITIONS, EvaluatedScalingMetric.of(info.getNumSourcePartitions()));
        double u = number(given.conf(), "utilization.target", 0.7);
        double boundary = number(given.conf(), "target.utilization.boundary", 0.3);
        double most = backlog ? 1 : number(given.conf(), "utilization.max", u + boundary);
        double least = backlog ? 0 : number(given.conf(), "utilization.min", u - boundary);
        found.put(
                SCALE_UP_RATE_THRESHOLD,
                EvaluatedScalingMetric.of(capacity(given, found, most, false)));
        found.put(
                SCALE_DOWN_RATE_THRESHOLD,
                EvaluatedScalingMetric.of(capacity(given, found, least, true)));
        return found;
    }

    private static double capacity(
            Given given,
            Map<ScalingMetric, EvaluatedScalingMetric> metrics,
            double utilization,
            boolean withRestart) {
        double catchUp = metrics.get(CATCH_UP_DATA_RATE).getCurrent();
        double target = metrics.get(TARGET_DATA_RATE).getAverage();
        double catchUpS = seconds(given.conf(), "catch-up.duration", 1800);
        double u = Math.min(1, Math.max(0, utilization));
        if (Double.isNaN(catchUp) || Double.isNaN(target)) {
            return Double.NaN;
        }
        if (u == 0) {
            return Double.POSITIVE_INFINITY;
        }
        double restart =
                withRestart && catchUpS > 0 ? target * given.restart().toSeconds() / catchUpS : 0;
        return Math.round(catchUp + restart + target / u);
    }

    private void execute(Given given, JobAutoScalerContext<String> context, Done done) {
        Configuration conf = given.conf();
        Map<JobVertexID, ScalingSummary> summaries = new HashMap<>();
        boolean isOutside = false;
        List<String> excluded = List.of(text(conf, "vertex.exclude.ids", "").split(";"));
        for (var entry : done.evaluated.entrySet()) {
            var metrics = entry.getValue();
            JobVertexID vertex = entry.getKey();
            int running = (int) metrics.get(PARALLELISM).getCurrent();
            boolean isLeft =
                    excluded.contains(vertex.toHexString())
                            || given.graph().get(vertex).isFinished();
            int wanted = isLeft ? running : scaled(given, vertex, metrics);
            done.recommended.put(vertex, wanted);
            if (wanted == running) {
                continue;
            }
            double rate = metrics.get(TRUE_PROCESSING_RATE).getAverage();
            isOutside |=
                    rate < metrics.get(SCALE_UP_RATE_THRESHOLD).getCurrent()
                            || rate > metrics.get(SCALE_DOWN_RATE_THRESHOLD).getCurrent();
            summaries.put(vertex, new ScalingSummary(running, wanted, metrics));
        }
        if (!isOutside || !Boolean.parseBoolean(text(conf, "scaling.enabled", "true"))) {
            return;
        }
        for (var chosen : chosen(conf)) {
            var own =
                    new ScalingExecutorPlugin.Context<>(
                            context,
                            stripped(conf, "scaling.custom-executor." + chosen.getKey() + "."));
            summaries = chosen.getValue().apply(own, summaries);
            if (summaries == null || summaries.isEmpty()) {
                done.events.add("ScalingVetoed");
                return;
            }
        }
        summaries.forEach((vertex, one) -> done.applied.put(vertex, one.getNewParallelism()));
    }

    private List<Map.Entry<String, ScalingExecutorPlugin<String>>> chosen(Configuration conf) {
        List<Map.Entry<String, ScalingExecutorPlugin<String>>> found = new ArrayList<>();
        for (String name : text(conf, "scaling.custom-executors", "").split(";")) {
            String type = text(conf, "scaling.custom-executor." + name + ".class", "");
            executors.stream()
                    .filter(one -> one.getClass().getName().equals(type))
                    .forEach(one -> found.add(Map.entry(name, one)));
        }
        found.sort(Comparator.comparingInt(one -> one.getValue().priority()));
        return found;
    }

    private static int scaled(
            Given given, JobVertexID vertex, Map<ScalingMetric, EvaluatedScalingMetric> metrics) {
        Configuration conf = given.conf();
        VertexInfo info = given.graph().get(vertex);
        int running = info.getParallelism();
        double rate = metrics.get(TRUE_PROCESSING_RATE).getAverage();
        double capacity = capacity(given, metrics, number(conf, "utilization.target", 0.7), true);
        if (Double.isNaN(rate) || Double.isNaN(capacity)) {
            return running;
        }
        double factor = capacity / rate;
        factor = Math.max(factor, 1 - number(conf, "scale-down.max-factor", 0.6));
        factor = Math.min(factor, 1 + number(conf, "scale-up.max-factor", 100_000));
        int raw = (int) Math.min(Math.ceil(factor * running), Integer.MAX_VALUE);
        int low = Math.min(running, (int) number(conf, "vertex.min-parallelism", 1));
        int high = Math.max(running, (int) number(conf, "vertex.max-parallelism", 200));
        high = Math.min(high, info.getMaxParallelism());
        int wanted = Math.min(Math.max(low, raw), high);
        if (wanted != running) {
            wanted = aligned(conf, info, running, wanted, high);
        }
        boolean isHeld = wanted < running && seconds(conf, "scale-down.interval", 3600) > 0;
        return isHeld ? running : wanted;
    }

    private static int aligned(
            Configuration conf, VertexInfo info, int running, int wanted, int high) {
        boolean applies =
                info.getNumSourcePartitions() > 0
                        || info.getInputs().containsValue(ShipStrategy.HASH);
        String mode = text(conf, "scaling.parallelism-alignment.mode", "BALANCED");
        if (!applies || mode.equals("OFF")) {
            return wanted;
        }
        int partitions = info.getNumSourcePartitions();
        int n = partitions > 0 ? partitions : info.getMaxParallelism();
        int cap = Math.min(n, high);
        for (int q = wanted; q <= (wanted > running ? cap : Math.min(running, cap)); q++) {
            if (n % q == 0 || n / q < n / wanted) {
                return q;
            }
        }
        return wanted;
    }

    private static boolean isBacklog(Given given) {
        return given.graph().getVerticesInTopologicalOrder().stream()
                .filter(given.graph()::isSource)
                .anyMatch(
                        vertex ->
                                last(given, vertex, LAG) / rate(given, vertex, NUM_RECORDS_IN)
                                        > seconds(
                                                given.conf(),
                                                "backlog-processing.lag-threshold",
                                                300));
    }

    private static double rate(Given given, JobVertexID vertex, ScalingMetric metric) {
        TreeMap<Instant, Double> known = new TreeMap<>();
        given.history()
                .forEach(
                        (at, sample) -> {
                            Double value = sample.getVertexMetrics().get(vertex).get(metric);
                            if (value != null && !value.isNaN()) {
                                known.put(at, value);
                            }
                        });
        if (known.size() < 2) {
            return metric == LAG ? 0 : Double.NaN;
        }
        double grown = known.lastEntry().getValue() - known.firstEntry().getValue();
        return 1000 * grown / Duration.between(known.firstKey(), known.lastKey()).toMillis();
    }

    private static double mean(Given given, JobVertexID vertex, ScalingMetric metric) {
        return given.history().values().stream()
                .map(sample -> sample.getVertexMetrics().get(vertex).get(metric))
                .filter(value -> value != null && Double.isFinite(value))
                .mapToDouble(Double::doubleValue)
                .average()
                .orElse(Double.NaN);
    }

    private static double last(Given given, JobVertexID vertex, ScalingMetric metric) {
        var sample = given.history().get(given.history().lastKey());
        return sample.getVertexMetrics().get(vertex).getOrDefault(metric, 0.0);
    }

    private static Configuration stripped(Configuration conf, String own) {
        Configuration found = new Configuration();
        conf.toMap()
                .forEach(
                        (key, value) -> {
                            if (key.startsWith(PREFIX + own)) {
                                found.setString(key.substring((PREFIX + own).length()), value);
                            }
                        });
        return found;
    }

    private static String text(Configuration conf, String key, String otherwise) {
        return conf.toMap().getOrDefault(PREFIX + key, otherwise);
    }

    private static double number(Configuration conf, String key, double otherwise) {
        return Double.parseDouble(text(conf, key, Double.toString(otherwise)));
    }

    private static double seconds(Configuration conf, String key, double otherwise) {
        String found = text(conf, key, otherwise + "s");
        return Double.parseDouble(found.replaceAll(" ?s$", ""));
    }
}
