package dspgym.operator;

import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.flink.autoscaler.JobAutoScalerContext;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.topology.JobTopology;
import org.apache.flink.autoscaler.topology.VertexInfo;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * The rates that make the autoscaler go to a parallelism.
 *
 * <p>It runs {@code ceil(p * capacity / T)} subtasks, where T is what p subtasks can process, and
 * capacity is the target rate over the target utilization, plus what a restart leaves behind. The
 * target rate below puts {@code p * capacity / T} half a subtask under the parallelism wanted.
 *
 * @param utilization aimed at, above 0 to 1
 * @param restart seconds of a restart over the seconds to catch up after it
 */
record Course(double utilization, double restart) {

    /** Capacities are rounded to whole records, so a subtask must process this many per second. */
    private static final double LEAST_PER_SUBTASK = 10.0;

    private static final double STAND_IN_PER_SUBTASK = 1000.0;
    private static final double MOST = 1e12;

    static Course of(JobAutoScalerContext<?> context) {
        Configuration given = context.getConfiguration();
        double catchUpS = given.get(Autoscaler.CATCH_UP).toSeconds();
        double restartS = context.getRestartTime().toSeconds();
        return new Course(
                given.get(Autoscaler.UTILIZATION_TARGET),
                catchUpS == 0 ? 0 : restartS / catchUpS);
    }

    /**
     * Overrides of one vertex that lead to a parallelism; there are some for every vertex.
     *
     * @param measured what the running subtasks can process, records per second; may be unknown
     */
    Map<ScalingMetric, EvaluatedScalingMetric> to(int wanted, int running, double measured) {
        int most = Math.max(wanted, running);
        boolean isUsable = measured >= LEAST_PER_SUBTASK * most && measured <= MOST;
        double rate = isUsable ? measured : STAND_IN_PER_SUBTASK * most;
        double target = rate * (wanted - 0.5) / running / (1 / utilization + restart);
        double up = wanted > running ? 2 * rate : wanted < running ? rate / 4 : rate / 2;
        double down = wanted > running ? 4 * rate : wanted < running ? rate / 2 : 2 * rate;
        Map<ScalingMetric, EvaluatedScalingMetric> found = new EnumMap<>(ScalingMetric.class);
        if (!isUsable) {
            found.put(ScalingMetric.TRUE_PROCESSING_RATE, EvaluatedScalingMetric.avg(rate));
        }
        found.put(ScalingMetric.TARGET_DATA_RATE, EvaluatedScalingMetric.avg(target));
        found.put(ScalingMetric.CATCH_UP_DATA_RATE, EvaluatedScalingMetric.of(0));
        found.put(ScalingMetric.SCALE_UP_RATE_THRESHOLD, EvaluatedScalingMetric.of(up));
        found.put(ScalingMetric.SCALE_DOWN_RATE_THRESHOLD, EvaluatedScalingMetric.of(down));
        return found;
    }

    /** Refuses an answer that the autoscaler would only follow in part. */
    static void refusePartial(JobAutoScalerContext<?> context, Answer answer) {
        Configuration given = context.getConfiguration();
        JobTopology graph = context.getJobTopology();
        Set<String> fixed = Snapshot.excluded(given, graph);
        List<VertexInfo> vertices = List.copyOf(graph.getVertexInfos().values());
        for (VertexInfo vertex : vertices) {
            int running = vertex.getParallelism();
            int wanted = answer.parallelism().get(vertex.getId());
            if (wanted == running) {
                continue;
            }
            if (fixed.contains(vertex.getId().toHexString())) {
                throw partial(vertex.getId(), wanted, "it is excluded or finished");
            }
            int lowest = Math.min(running, given.get(Autoscaler.MIN_PARALLELISM));
            int highest = Math.max(running, given.get(Autoscaler.MAX_PARALLELISM));
            highest = Math.min(highest, vertex.getMaxParallelism());
            double factor = 1 + given.get(Autoscaler.MAX_SCALE_UP);
            if (wanted < lowest || wanted > highest || wanted > factor * running) {
                String bounds = lowest + " to " + highest + ", at most " + factor + " times";
                throw partial(vertex.getId(), wanted, "the autoscaler goes to " + bounds);
            }
        }
    }

    private static NoAnswerException partial(JobVertexID vertex, int wanted, String why) {
        return new NoAnswerException(
                "vertex " + vertex.toHexString() + " cannot go to " + wanted + ": " + why);
    }
}
