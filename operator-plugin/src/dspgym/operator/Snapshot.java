package dspgym.operator;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.autoscaler.JobAutoScalerContext;
import org.apache.flink.autoscaler.metrics.CollectedMetricHistory;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.topology.JobTopology;
import org.apache.flink.autoscaler.topology.ShipStrategy;
import org.apache.flink.autoscaler.topology.VertexInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * What a cycle knows of a job, as {@code dsp-gym/snapshot/1}.
 *
 * <p>Vertices are sent as stateless: memory per vertex cannot be asked of the autoscaler, so no
 * policy shall plan with it.
 *
 * @param job its name in dsp-gym
 * @param tS time of the newest sample, Unix seconds
 * @param vertices ids by name, in topological order
 * @param arrivals records per second of each source, by id
 * @param document the snapshot
 */
record Snapshot(
        String job,
        double tS,
        Map<String, JobVertexID> vertices,
        Map<JobVertexID, Double> arrivals,
        Map<String, Object> document) {

    /** Looks at a job; {@link NoAnswerException} where dsp-gym cannot be asked about it. */
    static Snapshot of(JobAutoScalerContext<?> context, Settings settings) {
        JobTopology graph = context.getJobTopology();
        List<JobVertexID> order = graph.getVerticesInTopologicalOrder();
        if (order.size() < 2) {
            throw new NoAnswerException("the job is one chain: dsp-gym needs two vertices or more");
        }
        if (context.getMetricsHistory().size() < 2) {
            throw new NoAnswerException("there are fewer than two samples");
        }
        Samples samples = new Samples(context.getMetricsHistory());
        Set<String> fixed = excluded(context.getConfiguration(), graph);
        Map<String, JobVertexID> vertices = new LinkedHashMap<>();
        Map<JobVertexID, Double> arrivals = new LinkedHashMap<>();
        List<Object> documents = new ArrayList<>();
        for (JobVertexID id : order) {
            String name = name(id, settings);
            if (vertices.put(name, id) != null) {
                throw new NoAnswerException("two vertices are called '" + name + "'");
            }
            documents.add(vertex(graph.get(id), samples, fixed, settings));
            if (graph.isSource(id)) {
                double consumed = samples.growth(id, ScalingMetric.NUM_RECORDS_IN);
                double grown = samples.rate(id, ScalingMetric.LAG);
                arrivals.put(id, Math.max(0, consumed + (Double.isNaN(grown) ? 0 : grown)));
            }
        }
        String job = settings.job() == null ? named(context, order) : settings.job();
        double tS = context.getMetricsHistory().lastKey().toEpochMilli() / 1000.0;
        Map<String, Object> document = new LinkedHashMap<>();
        document.put("schema", "dsp-gym/snapshot/1");
        document.put("job", job);
        document.put("t_s", tS);
        document.put("status", "RUNNING");
        document.put("max_parallelism_per_vertex", quota(context, graph));
        document.put("metrics", ofJob(context, samples));
        document.put("vertices", documents);
        return new Snapshot(job, tS, vertices, arrivals, document);
    }

    /** Ids of vertices whose parallelism the autoscaler leaves alone. */
    static Set<String> excluded(Configuration given, JobTopology graph) {
        Set<String> found = new HashSet<>(given.get(Autoscaler.EXCLUDED));
        graph.getVertexInfos()
                .forEach(
                        (id, vertex) -> {
                            if (vertex.isFinished()) {
                                found.add(id.toHexString());
                            }
                        });
        return found;
    }

    private static Map<String, Object> ofJob(JobAutoScalerContext<?> context, Samples samples) {
        Duration window = context.getConfiguration().get(Autoscaler.WINDOW);
        double windowS = Math.max(1.0, window.toMillis() / 1000.0);
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("window_s", windowS);
        boolean isFull = isFull(context);
        found.put("window_fill", isFull ? 1.0 : Math.min(1.0, samples.seconds() / windowS));
        Instant since = context.getScalingCycleState().getCollectedMetrics().getJobRunningTs();
        found.put("running_since_s", since == null ? null : since.toEpochMilli() / 1000.0);
        return found;
    }

    /** Whether the window is full, so that the autoscaler decides in this cycle. */
    static boolean isFull(JobAutoScalerContext<?> context) {
        CollectedMetricHistory found = context.getScalingCycleState().getCollectedMetrics();
        return found.isFullyCollected();
    }

    private static Map<String, Object> vertex(
            VertexInfo vertex, Samples samples, Set<String> fixed, Settings settings) {
        JobVertexID id = vertex.getId();
        List<Object> inputs = new ArrayList<>();
        vertex.getInputs()
                .forEach(
                        (from, ship) ->
                                inputs.add(
                                        Map.of("from", name(from, settings), "ship", ship(ship))));
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("name", name(id, settings));
        found.put("kind", kind(vertex));
        found.put("inputs", inputs);
        found.put("scalable", !fixed.contains(id.toHexString()));
        found.put("max_parallelism", Math.max(vertex.getMaxParallelism(), vertex.getParallelism()));
        if (vertex.getInputs().isEmpty() && vertex.getNumSourcePartitions() > 0) {
            found.put("partitions", vertex.getNumSourcePartitions());
        }
        found.put("slot_sharing_group", "default");
        found.put("parallelism", vertex.getParallelism());
        found.put("memory_level", -1);
        found.put("metrics", metrics(vertex, samples));
        return found;
    }

    private static Map<String, Object> metrics(VertexInfo vertex, Samples samples) {
        JobVertexID id = vertex.getId();
        double busy = samples.growth(id, ScalingMetric.ACCUMULATED_BUSY_TIME);
        double busiest = 1000.0 * samples.mean(id, ScalingMetric.LOAD);
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("records_in_total", samples.last(id, ScalingMetric.NUM_RECORDS_IN));
        found.put("records_out_total", samples.last(id, ScalingMetric.NUM_RECORDS_OUT));
        found.put("records_in_per_s", samples.growth(id, ScalingMetric.NUM_RECORDS_IN));
        found.put("records_out_per_s", samples.growth(id, ScalingMetric.NUM_RECORDS_OUT));
        found.put("busy_ms_per_s", Math.min(1000.0, busy / vertex.getParallelism()));
        found.put("busy_max_ms_per_s", Math.min(1000.0, busiest));
        found.put("busy_accumulated_ms_per_s", busy);
        if (vertex.getInputs().isEmpty()) {
            found.put("pending_records", samples.last(id, ScalingMetric.LAG));
            found.put("pending_growth_per_s", samples.rate(id, ScalingMetric.LAG));
        }
        return found;
    }

    private static String name(JobVertexID id, Settings settings) {
        return settings.names().getOrDefault(id.toHexString(), id.toHexString());
    }

    private static String kind(VertexInfo vertex) {
        if (vertex.getInputs().isEmpty()) {
            return "source";
        }
        return vertex.getOutputs().isEmpty() ? "sink" : "operator";
    }

    private static String ship(ShipStrategy strategy) {
        return switch (strategy) {
            case HASH, FORWARD -> strategy.name();
            default -> "REBALANCE";
        };
    }

    /** A changed graph is another job to dsp-gym, so the default name tells graphs apart. */
    private static String named(JobAutoScalerContext<?> context, List<JobVertexID> order) {
        List<String> ids = order.stream().map(JobVertexID::toHexString).sorted().toList();
        return String.format("%s#%08x", context.getJobKey(), ids.hashCode());
    }

    private static int quota(JobAutoScalerContext<?> context, JobTopology graph) {
        int running =
                graph.getVertexInfos().values().stream()
                        .mapToInt(VertexInfo::getParallelism)
                        .max()
                        .orElse(1);
        int most = context.getConfiguration().get(Autoscaler.MAX_PARALLELISM);
        return Math.min(2048, Math.max(most, running));
    }
}
