package org.apache.flink.autoscaler.metrics;

import java.util.Map;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Declaration: what a cycle made of the samples. */
public class EvaluatedMetrics {

    private Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> vertexMetrics;
    private Map<ScalingMetric, EvaluatedScalingMetric> globalMetrics;

    public EvaluatedMetrics() {}

    public EvaluatedMetrics(
            Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> vertexMetrics,
            Map<ScalingMetric, EvaluatedScalingMetric> globalMetrics) {
        this.vertexMetrics = vertexMetrics;
        this.globalMetrics = globalMetrics;
    }

    public Map<JobVertexID, Map<ScalingMetric, EvaluatedScalingMetric>> getVertexMetrics() {
        return vertexMetrics;
    }

    public Map<ScalingMetric, EvaluatedScalingMetric> getGlobalMetrics() {
        return globalMetrics;
    }
}
