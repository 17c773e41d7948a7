package org.apache.flink.autoscaler;

import java.time.Duration;
import java.time.Instant;
import java.util.Collections;
import java.util.SortedMap;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.autoscaler.metrics.CollectedMetricHistory;
import org.apache.flink.autoscaler.metrics.CollectedMetrics;
import org.apache.flink.autoscaler.metrics.EvaluatedMetrics;
import org.apache.flink.autoscaler.topology.JobTopology;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.UnmodifiableConfiguration;
import org.apache.flink.metrics.MetricGroup;

/** Declaration: a job and what is known of it in one cycle. */
public class JobAutoScalerContext<KEY> {

    private final KEY jobKey;
    private final JobID jobID;
    private final JobStatus jobStatus;
    private final Configuration configuration;
    private final MetricGroup metricGroup;
    private ScalingCycleState cycle;

    public JobAutoScalerContext(
            KEY jobKey,
            JobID jobID,
            JobStatus jobStatus,
            Configuration configuration,
            MetricGroup metricGroup) {
        this.jobKey = jobKey;
        this.jobID = jobID;
        this.jobStatus = jobStatus;
        this.configuration = configuration;
        this.metricGroup = metricGroup;
    }

    protected JobAutoScalerContext(JobAutoScalerContext<KEY> other, Configuration overrides) {
        this(
                other.jobKey,
                other.jobID,
                other.jobStatus,
                merged(other.configuration, overrides),
                other.metricGroup);
        this.cycle = other.getScalingCycleState();
    }

    public KEY getJobKey() {
        return jobKey;
    }

    public JobID getJobID() {
        return jobID;
    }

    public JobStatus getJobStatus() {
        return jobStatus;
    }

    public Configuration getConfiguration() {
        return configuration;
    }

    public MetricGroup getMetricGroup() {
        return metricGroup;
    }

    public ScalingCycleState getScalingCycleState() {
        if (cycle == null) {
            cycle = new ScalingCycleState();
        }
        return cycle;
    }

    public JobTopology getJobTopology() {
        return getScalingCycleState().collectedMetrics.getJobTopology();
    }

    public EvaluatedMetrics getEvaluatedMetrics() {
        return getScalingCycleState().evaluatedMetrics;
    }

    public SortedMap<Instant, CollectedMetrics> getMetricsHistory() {
        return Collections.unmodifiableSortedMap(
                getScalingCycleState().collectedMetrics.getMetricHistory());
    }

    public Duration getRestartTime() {
        return getScalingCycleState().restartTime;
    }

    private static Configuration merged(Configuration base, Configuration overrides) {
        Configuration found = new Configuration(base);
        found.addAll(overrides);
        return new UnmodifiableConfiguration(found);
    }

    /** Declaration: what one cycle has found so far. */
    public static class ScalingCycleState {

        CollectedMetricHistory collectedMetrics;
        EvaluatedMetrics evaluatedMetrics;
        Duration restartTime;

        public CollectedMetricHistory getCollectedMetrics() {
            return collectedMetrics;
        }
    }
}
