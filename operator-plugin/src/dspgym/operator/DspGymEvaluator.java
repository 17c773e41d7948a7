package dspgym.operator;

import java.util.Map;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetricsEvaluatorPlugin;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Asks dsp-gym once a cycle, and changes what the autoscaler has evaluated as its mode says. */
public final class DspGymEvaluator implements ScalingMetricsEvaluatorPlugin {

    private static final Logger LOG = LoggerFactory.getLogger(DspGymEvaluator.class);

    /** Made by the operator, once for all jobs. */
    public DspGymEvaluator() {
        try {
            Client.prepare();
        } catch (RuntimeException | LinkageError error) {
            LOG.warn("dsp-gym cannot be asked", error);
        }
    }

    /**
     * After evaluators of usual priorities, so that their rates are known and mode policy has the last
     * word. No operator up to 1.16.0 asks for it, and its interface has no such method (FLINK-39554).
     */
    public int priority() {
        return 1000;
    }

    @Override
    public Map<ScalingMetric, EvaluatedScalingMetric> evaluateVertexMetrics(
            JobVertexID vertex,
            Map<ScalingMetric, EvaluatedScalingMetric> evaluatedMetrics,
            Context<?> evaluationContext) {
        try {
            return overrides(vertex, evaluatedMetrics, evaluationContext);
        } catch (RuntimeException | LinkageError error) {
            LOG.warn("The built-in metrics of vertex {} stand", vertex, error);
            return Map.of();
        }
    }

    private static Map<ScalingMetric, EvaluatedScalingMetric> overrides(
            JobVertexID vertex,
            Map<ScalingMetric, EvaluatedScalingMetric> evaluated,
            Context<?> context) {
        Job job = Job.of(context.getJobKey());
        Cycle cycle = job.in(context);
        job.gauges.show(context.getMetricGroup(), vertex);
        if (cycle.answer() == null || !job.isAskedBy(cycle, context)) {
            return Map.of();
        }
        if (cycle.leads()) {
            int running = context.getJobTopology().get(vertex).getParallelism();
            EvaluatedScalingMetric rate = evaluated.get(ScalingMetric.TRUE_PROCESSING_RATE);
            double measured = rate == null ? Double.NaN : rate.getAverage();
            return cycle.course()
                    .to(cycle.answer().parallelism().get(vertex), running, measured);
        }
        if (cycle.raises() && context.getJobTopology().isSource(vertex)) {
            return Forecast.of(cycle, vertex, evaluated, context);
        }
        return Map.of();
    }
}
