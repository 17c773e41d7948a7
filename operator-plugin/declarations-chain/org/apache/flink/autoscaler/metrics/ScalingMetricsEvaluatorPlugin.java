package org.apache.flink.autoscaler.metrics;

import java.util.Map;
import org.apache.flink.autoscaler.JobAutoScalerContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Declaration with the order of a chain (FLINK-39554), which 1.16.0 has not. */
public interface ScalingMetricsEvaluatorPlugin {

    Map<ScalingMetric, EvaluatedScalingMetric> evaluateVertexMetrics(
            JobVertexID vertex,
            Map<ScalingMetric, EvaluatedScalingMetric> evaluatedMetrics,
            Context<?> evaluationContext);

    default int priority() {
        return 0;
    }

    /** Declaration. */
    class Context<KEY> extends JobAutoScalerContext<KEY> {

        private final Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> evaluated;
        private final boolean processingBacklog;

        public Context(
                JobAutoScalerContext<KEY> autoScalerContext,
                Configuration overrides,
                Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> evaluatedVertexMetrics,
                boolean processingBacklog) {
            super(autoScalerContext, overrides);
            this.evaluated = evaluatedVertexMetrics;
            this.processingBacklog = processingBacklog;
        }

        public Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>>
                getEvaluatedVertexMetrics() {
            return evaluated;
        }

        public boolean isProcessingBacklog() {
            return processingBacklog;
        }
    }
}
