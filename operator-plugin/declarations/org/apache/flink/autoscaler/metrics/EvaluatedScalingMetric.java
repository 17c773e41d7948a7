package org.apache.flink.autoscaler.metrics;

import java.math.BigDecimal;
import java.math.RoundingMode;

/** Declaration: a metric now, and over the window; NaN is unknown. */
public class EvaluatedScalingMetric {

    private double current;
    private double average;

    public EvaluatedScalingMetric() {}

    public EvaluatedScalingMetric(double current, double average) {
        this.current = rounded(current);
        this.average = rounded(average);
    }

    public static EvaluatedScalingMetric of(double current) {
        return new EvaluatedScalingMetric(current, Double.NaN);
    }

    public static EvaluatedScalingMetric avg(double average) {
        return new EvaluatedScalingMetric(Double.NaN, average);
    }

    public double getCurrent() {
        return current;
    }

    public double getAverage() {
        return average;
    }

    private static double rounded(double value) {
        if (!Double.isFinite(value)) {
            return value;
        }
        double found =
                BigDecimal.valueOf(value).setScale(3, RoundingMode.HALF_UP).doubleValue();
        return found == 0 ? value : found;
    }
}
