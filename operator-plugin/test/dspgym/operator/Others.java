package dspgym.operator;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.autoscaler.ScalingExecutorPlugin;
import org.apache.flink.autoscaler.ScalingSummary;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetricsEvaluatorPlugin;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Evaluators and executors of others, which the same job may have. */
final class Others {

    private Others() {}

    /** Sets what its options say, such as {@code sets.LAG: NaN,5}; {@code of} limits it to a vertex. */
    private abstract static class Sets implements ScalingMetricsEvaluatorPlugin {

        @Override
        public Map<ScalingMetric, EvaluatedScalingMetric> evaluateVertexMetrics(
                JobVertexID vertex,
                Map<ScalingMetric, EvaluatedScalingMetric> evaluatedMetrics,
                Context<?> evaluationContext) {
            Map<String, String> given = evaluationContext.getConfiguration().toMap();
            if (given.containsKey("throws")) {
                throw new IllegalStateException("as evaluators may");
            }
            Map<ScalingMetric, EvaluatedScalingMetric> found = new HashMap<>();
            if (vertex.toHexString().equals(given.getOrDefault("of", vertex.toHexString()))) {
                given.forEach((key, value) -> put(found, key, value));
            }
            return found;
        }

        private static void put(
                Map<ScalingMetric, EvaluatedScalingMetric> found, String key, String value) {
            if (key.startsWith("sets.")) {
                String[] sides = value.split(",");
                found.put(
                        ScalingMetric.valueOf(key.substring("sets.".length())),
                        new EvaluatedScalingMetric(
                                Double.parseDouble(sides[0]), Double.parseDouble(sides[1])));
            }
        }
    }

    /** Of the priority that evaluators have by default. */
    static final class Early extends Sets {}

    /** After any of a usual priority, and after dsp-gym's. */
    static final class Late extends Sets {

        @Override
        public int priority() {
            return 2000;
        }
    }

    /** One subtask more for every vertex that changes. */
    static final class Adds<KEY> implements ScalingExecutorPlugin<KEY> {

        @Override
        public Map<JobVertexID, ScalingSummary> apply(
                Context<KEY> context, Map<JobVertexID, ScalingSummary> given) {
            Map<JobVertexID, ScalingSummary> found = new HashMap<>();
            given.forEach(
                    (vertex, one) ->
                            found.put(
                                    vertex,
                                    new ScalingSummary(
                                            one.getCurrentParallelism(),
                                            one.getNewParallelism() + 1,
                                            one.getMetrics())));
            return found;
        }
    }

    /** Ends the cycle. */
    static final class Throws<KEY> implements ScalingExecutorPlugin<KEY> {

        @Override
        public Map<JobVertexID, ScalingSummary> apply(
                Context<KEY> context, Map<JobVertexID, ScalingSummary> given) {
            throw new IllegalStateException("as executors may");
        }
    }
}
