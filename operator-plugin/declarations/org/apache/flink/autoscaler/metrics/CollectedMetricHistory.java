package org.apache.flink.autoscaler.metrics;

import java.time.Instant;
import java.util.SortedMap;
import org.apache.flink.autoscaler.topology.JobTopology;

/** Declaration: the graph, the samples of the window, and whether they fill it. */
public class CollectedMetricHistory {

    private final JobTopology jobTopology;
    private final SortedMap<Instant, CollectedMetrics> metricHistory;
    private final Instant jobRunningTs;
    private boolean fullyCollected;

    public CollectedMetricHistory(
            JobTopology jobTopology,
            SortedMap<Instant, CollectedMetrics> metricHistory,
            Instant jobRunningTs) {
        this.jobTopology = jobTopology;
        this.metricHistory = metricHistory;
        this.jobRunningTs = jobRunningTs;
    }

    public JobTopology getJobTopology() {
        return jobTopology;
    }

    public SortedMap<Instant, CollectedMetrics> getMetricHistory() {
        return metricHistory;
    }

    public Instant getJobRunningTs() {
        return jobRunningTs;
    }

    public boolean isFullyCollected() {
        return fullyCollected;
    }

    public void setFullyCollected(boolean fullyCollected) {
        this.fullyCollected = fullyCollected;
    }
}
