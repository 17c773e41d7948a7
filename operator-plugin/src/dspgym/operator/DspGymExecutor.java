package dspgym.operator;

import java.util.HashMap;
import java.util.Map;
import org.apache.flink.autoscaler.ScalingExecutorPlugin;
import org.apache.flink.autoscaler.ScalingSummary;
import org.apache.flink.runtime.jobgraph.JobVertexID;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Vetoes a rescale to anything but what dsp-gym's guardrails have allowed in this cycle.
 *
 * <p>It has no say where dsp-gym did not answer, nor in the modes observe and forecast.
 *
 * @param <KEY> how the autoscaler calls a job
 */
public final class DspGymExecutor<KEY> implements ScalingExecutorPlugin<KEY> {

    private static final Logger LOG = LoggerFactory.getLogger(DspGymExecutor.class);

    /** Made by the operator, once for all jobs. */
    public DspGymExecutor() {}

    /** After executors of usual priorities, so that it sees what they have made of a decision. */
    @Override
    public int priority() {
        return 1000;
    }

    @Override
    public Map<JobVertexID, ScalingSummary> apply(
            Context<KEY> context, Map<JobVertexID, ScalingSummary> scalingSummaries) {
        try {
            return isForbidden(context, scalingSummaries) ? Map.of() : scalingSummaries;
        } catch (RuntimeException | LinkageError error) {
            LOG.warn("The decision stands: dsp-gym's guardrails cannot be asked", error);
            return scalingSummaries;
        }
    }

    private boolean isForbidden(
            Context<KEY> context, Map<JobVertexID, ScalingSummary> scalingSummaries) {
        Job job = Job.of(context.getJobKey());
        Cycle cycle = job.already(context);
        if (cycle == null || !cycle.leads()) {
            return false;
        }
        Map<JobVertexID, Integer> allowed = new HashMap<>(cycle.answer().parallelism());
        Map<JobVertexID, Integer> asked = new HashMap<>();
        context.getJobTopology()
                .getVertexInfos()
                .forEach((vertex, info) -> asked.put(vertex, info.getParallelism()));
        scalingSummaries.forEach((vertex, one) -> asked.put(vertex, one.getNewParallelism()));
        if (asked.equals(allowed)) {
            return false;
        }
        job.vetoes.incrementAndGet();
        LOG.warn(
                "{}: vetoed: asked for {}, dsp-gym's guardrails allow {}",
                context.getJobKey(),
                asked,
                allowed);
        return true;
    }
}
