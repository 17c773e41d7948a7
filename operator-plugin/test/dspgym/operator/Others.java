package dspgym.operator;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.autoscaler.ScalingExecutorPlugin;
import org.apache.flink.autoscaler.ScalingSummary;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Executors of others, which the same job may have. */
final class Others {

    private Others() {}

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
