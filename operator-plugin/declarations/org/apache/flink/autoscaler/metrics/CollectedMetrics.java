package org.apache.flink.autoscaler.metrics;

import java.util.Map;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Declaration: one sample. */
public class CollectedMetrics {

    private Map<JobVertexID, Map<ScalingMetric, Double>> vertexMetrics;
    private Map<ScalingMetric, Double> globalMetrics;

    public CollectedMetrics() {}

    public CollectedMetrics(
            Map<JobVertexID, Map<ScalingMetric, Double>> vertexMetrics,
            Map<ScalingMetric, Double> globalMetrics) {
        this.vertexMetrics = vertexMetrics;
        this.globalMetrics = globalMetrics;
    }

    public Map<JobVertexID, Map<ScalingMetric, Double>> getVertexMetrics() {
        return vertexMetrics;
    }

    public Map<ScalingMetric, Double> getGlobalMetrics() {
        return globalMetrics;
    }
}
