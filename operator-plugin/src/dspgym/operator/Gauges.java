package dspgym.operator;

import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * What dsp-gym would do, beside what the autoscaler recommends.
 *
 * <p>{@code AutoScaler.jobVertexID.HEX.DSP_GYM_PARALLELISM.Current} stands beside {@code
 * RECOMMENDED_PARALLELISM}; {@code AutoScaler.DspGym.*} tell of the plugin. NaN is unknown.
 */
final class Gauges {

    private final Job job;
    private final Set<JobVertexID> shown = new HashSet<>();
    private MetricGroup group;

    Gauges(Job job) {
        this.job = job;
    }

    /** Shows a vertex; a metric is registered once in the life of its group. */
    synchronized void show(MetricGroup given, JobVertexID vertex) {
        if (given == null) {
            return;
        }
        MetricGroup autoscaler = given.addGroup("AutoScaler");
        if (group != given) {
            group = given;
            shown.clear();
            MetricGroup own = autoscaler.addGroup("DspGym");
            own.gauge("Answers", count(job.answers));
            own.gauge("Failures", count(job.failures));
            own.gauge("Vetoes", count(job.vetoes));
            own.gauge("Leads", (Gauge<Integer>) () -> leads());
        }
        if (shown.add(vertex)) {
            MetricGroup own = autoscaler.addGroup("jobVertexID", vertex.toHexString());
            own.addGroup("DSP_GYM_PARALLELISM")
                    .gauge("Current", (Gauge<Double>) () -> parallelism(vertex));
            own.addGroup("DSP_GYM_FORECAST_DATA_RATE")
                    .gauge("Current", (Gauge<Double>) () -> forecast(vertex));
        }
    }

    private static Gauge<Long> count(AtomicLong counter) {
        return counter::get;
    }

    private int leads() {
        Cycle last = job.last();
        return last != null && last.leads() ? 1 : 0;
    }

    private double parallelism(JobVertexID vertex) {
        Cycle last = job.last();
        Integer found =
                last == null || last.answer() == null
                        ? null
                        : last.answer().parallelism().get(vertex);
        return found == null ? Double.NaN : found;
    }

    private double forecast(JobVertexID vertex) {
        Cycle last = job.last();
        return last == null ? Double.NaN : last.forecastPerS(vertex);
    }
}
