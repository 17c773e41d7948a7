package dspgym.operator;

import java.util.EnumMap;
import java.util.Map;
import org.apache.flink.autoscaler.metrics.EvaluatedScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetric;
import org.apache.flink.autoscaler.metrics.ScalingMetricsEvaluatorPlugin;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/** Raises the target rate of a source to its share of a forecast; never lowers anything. */
final class Forecast {

    private static final ScalingMetric UP = ScalingMetric.SCALE_UP_RATE_THRESHOLD;
    private static final ScalingMetric DOWN = ScalingMetric.SCALE_DOWN_RATE_THRESHOLD;

    private Forecast() {}

    /** Overrides of one vertex; none where the forecast is not above what is observed. */
    static Map<ScalingMetric, EvaluatedScalingMetric> of(
            Cycle cycle,
            JobVertexID vertex,
            Map<ScalingMetric, EvaluatedScalingMetric> evaluated,
            ScalingMetricsEvaluatorPlugin.Context<?> context) {
        double forecast = cycle.forecastPerS(vertex);
        double observed = evaluated.get(ScalingMetric.TARGET_DATA_RATE).getAverage();
        double catchUp = evaluated.get(ScalingMetric.CATCH_UP_DATA_RATE).getCurrent();
        if (!(forecast > observed)) { // also where either is unknown
            return Map.of();
        }
        Configuration given = context.getConfiguration();
        double target = given.get(Autoscaler.UTILIZATION_TARGET);
        double boundary = given.get(Autoscaler.UTILIZATION_BOUNDARY);
        double most = given.getOptional(Autoscaler.UTILIZATION_MAX).orElse(target + boundary);
        double least = given.getOptional(Autoscaler.UTILIZATION_MIN).orElse(target - boundary);
        if (context.isProcessingBacklog()) {
            most = 1;
            least = 0;
        }
        double restart = Course.of(context).restart();
        double up = capacity(catchUp, forecast, most, 0);
        double down = capacity(catchUp, forecast, least, restart);
        Map<ScalingMetric, EvaluatedScalingMetric> found = new EnumMap<>(ScalingMetric.class);
        found.put(ScalingMetric.TARGET_DATA_RATE, EvaluatedScalingMetric.avg(forecast));
        found.put(UP, atLeast(UP, evaluated, up));
        found.put(DOWN, atLeast(DOWN, evaluated, down));
        return found;
    }

    /** A threshold that another evaluator of a chain may have set higher. */
    private static EvaluatedScalingMetric atLeast(
            ScalingMetric threshold,
            Map<ScalingMetric, EvaluatedScalingMetric> evaluated,
            double least) {
        EvaluatedScalingMetric before = evaluated.get(threshold);
        boolean isHigher = before != null && before.getCurrent() > least;
        return EvaluatedScalingMetric.of(isHigher ? before.getCurrent() : least);
    }

    /** The autoscaler's rule: what a vertex must process to carry a rate at a utilization. */
    static double capacity(double catchUp, double rate, double utilization, double restart) {
        double used = Math.max(0, Math.min(1, utilization));
        if (Double.isNaN(catchUp)) {
            return Double.NaN;
        }
        return used == 0
                ? Double.POSITIVE_INFINITY
                : Math.round(catchUp + rate * restart + rate / used);
    }
}
