package org.apache.flink.autoscaler;

import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Declaration (FLIP-575). */
public interface ScalingExecutorPlugin<KEY> {

    default int priority() {
        return 0;
    }

    Map<JobVertexID, ScalingSummary> apply(
            Context<KEY> context, Map<JobVertexID, ScalingSummary> scalingSummaries);

    /** Declaration. */
    class Context<KEY> extends JobAutoScalerContext<KEY> {

        public Context(JobAutoScalerContext<KEY> autoScalerContext, Configuration overrides) {
            super(autoScalerContext, overrides);
        }
    }
}
