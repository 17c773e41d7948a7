package dspgym.operator;

import java.time.Instant;
import java.util.Map;
import java.util.SortedMap;
import org.apache.flink.autoscaler.metrics.CollectedMetrics;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** What the samples of the window say of a vertex; NaN is unknown. */
final class Samples {

    private final SortedMap<Instant, CollectedMetrics> history;

    Samples(SortedMap<Instant, CollectedMetrics> history) {
        this.history = history;
    }

    /** Growth per second between the first and the last sample that know the metric. */
    double rate(JobVertexID vertex, ScalingMetric metric) {
        Instant begun = null;
        Instant ended = null;
        double first = Double.NaN;
        double last = Double.NaN;
        for (Map.Entry<Instant, CollectedMetrics> sample : history.entrySet()) {
            double value = value(sample.getValue(), vertex, metric);
            if (Double.isNaN(value)) {
                continue;
            }
            if (begun == null) {
                begun = sample.getKey();
                first = value;
            }
            ended = sample.getKey();
            last = value;
        }
        if (begun == null || begun.equals(ended)) {
            return Double.NaN;
        }
        return 1000.0 * (last - first) / (ended.toEpochMilli() - begun.toEpochMilli());
    }

    /** The same, NaN where a counter went backwards. */
    double growth(JobVertexID vertex, ScalingMetric counter) {
        double found = rate(vertex, counter);
        return found >= 0 ? found : Double.NaN;
    }

    /** Mean of the finite values. */
    double mean(JobVertexID vertex, ScalingMetric metric) {
        return history.values().stream()
                .mapToDouble(sample -> value(sample, vertex, metric))
                .filter(Double::isFinite)
                .average()
                .orElse(Double.NaN);
    }

    double last(JobVertexID vertex, ScalingMetric metric) {
        return value(history.get(history.lastKey()), vertex, metric);
    }

    /** Seconds between the first and the last sample. */
    double seconds() {
        return (history.lastKey().toEpochMilli() - history.firstKey().toEpochMilli()) / 1000.0;
    }

    private static double value(CollectedMetrics sample, JobVertexID vertex, ScalingMetric metric) {
        Map<ScalingMetric, Double> known = sample.getVertexMetrics().get(vertex);
        Double found = known == null ? null : known.get(metric);
        return found == null ? Double.NaN : found;
    }
}
