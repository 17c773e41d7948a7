package dspgym.operator;

import java.time.Instant;
import java.util.List;
import org.apache.flink.autoscaler.JobAutoScalerContext;
import org.apache.flink.runtime.jobgraph.JobVertexID;

/**
 * One cycle of one job: dsp-gym is asked once, before its first vertex.
 *
 * @param at time of the newest sample, which tells cycles apart
 * @param settings what the answer is for; null: the options are wrong
 * @param snapshot what was asked about; null: nothing was asked
 * @param answer null: the built-in decision stands
 * @param course leads every vertex to the answer; null: no vertex is led
 * @param why the built-in decision stands; null: it does not
 */
record Cycle(
        Instant at,
        Settings settings,
        Snapshot snapshot,
        Answer answer,
        Course course,
        String why) {

    /** Looks at the job and asks; never fails. */
    static Cycle begun(JobAutoScalerContext<?> context, Instant at) {
        long begunNs = System.nanoTime();
        Settings settings = null;
        Snapshot snapshot = null;
        try {
            settings = Settings.of(context.getConfiguration());
            boolean leads = settings.mode() == Mode.POLICY && decides(context);
            if (settings.mode() == Mode.POLICY) {
                refuseUnfit(Settings.missingForPolicy(context.getConfiguration()));
            }
            snapshot = Snapshot.of(context, settings);
            long deadlineNs = begunNs + settings.timeout().toNanos();
            Answer answer =
                    Answer.of(Client.ask(settings, snapshot, leads, deadlineNs), snapshot);
            Course course = null;
            if (leads) {
                Course.refusePartial(context, answer);
                course = Course.of(context);
            }
            return new Cycle(at, settings, snapshot, answer, course, null);
        } catch (NoAnswerException error) {
            return without(at, settings, snapshot, error.getMessage());
        } catch (RuntimeException | LinkageError error) {
            return without(at, settings, snapshot, "the plugin failed: " + error);
        }
    }

    /** Whether the autoscaler is led to the answer. */
    boolean leads() {
        return course != null;
    }

    /** Whether target rates may follow the forecast, which was good enough lately. */
    boolean raises() {
        return settings.mode() == Mode.FORECAST && answer.forecastError() <= settings.mostError();
    }

    /** Arrivals that are forecast for a source, records per second; NaN: none are. */
    double forecastPerS(JobVertexID vertex) {
        Double own = answer == null ? null : snapshot.arrivals().get(vertex);
        if (own == null) {
            return Double.NaN;
        }
        double all = snapshot.arrivals().values().stream().mapToDouble(Double::doubleValue).sum();
        return answer.forecastPerS() * own / all;
    }

    /** Whether the autoscaler decides in this cycle, or only looks. */
    private static boolean decides(JobAutoScalerContext<?> context) {
        boolean isEnabled = context.getConfiguration().get(Autoscaler.SCALING_ENABLED);
        return isEnabled && Snapshot.isFull(context);
    }

    private static void refuseUnfit(List<String> missing) {
        if (!missing.isEmpty()) {
            String said = String.join("; ", missing);
            throw new NoAnswerException("mode policy does not start: " + said);
        }
    }

    private static Cycle without(Instant at, Settings settings, Snapshot snapshot, String why) {
        return new Cycle(at, settings, snapshot, null, null, why);
    }
}
