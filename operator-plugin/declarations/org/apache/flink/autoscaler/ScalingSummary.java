package org.apache.flink.autoscaler;

import java.util.Map;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;

/** Declaration: a vertex that changes its parallelism. */
public class ScalingSummary {

    private int currentParallelism;
    private int newParallelism;
    private Map<ScalingMetric, EvaluatedScalingMetric> metrics;

    public ScalingSummary() {}

    public ScalingSummary(
            int currentParallelism,
            int newParallelism,
            Map<ScalingMetric, EvaluatedScalingMetric> metrics) {
        if (currentParallelism == newParallelism) {
            throw new IllegalArgumentException("the parallelism does not change");
        }
        this.currentParallelism = currentParallelism;
        this.newParallelism = newParallelism;
        this.metrics = metrics;
    }

    public int getCurrentParallelism() {
        return currentParallelism;
    }

    public int getNewParallelism() {
        return newParallelism;
    }

    public Map<ScalingMetric, EvaluatedScalingMetric> getMetrics() {
        return metrics;
    }
}
