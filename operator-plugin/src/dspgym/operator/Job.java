package dspgym.operator;

import java.time.Duration;
import java.time.Instant;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.autoscaler.JobAutoScalerContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the plugin remembers of a job; evaluator and executor share it.
 *
 * <p>A job is handled by one thread at a time, different jobs by many. Jobs do not wait for each
 * other.
 */
final class Job {

    private static final Logger LOG = LoggerFactory.getLogger(Job.class);
    private static final ConcurrentMap<Object, Job> ALL = new ConcurrentHashMap<>();
    private static final Duration KEPT = Duration.ofDays(1);

    final AtomicLong answers = new AtomicLong();
    final AtomicLong failures = new AtomicLong();
    final AtomicLong vetoes = new AtomicLong();
    final Gauges gauges = new Gauges(this);

    private final Object key;
    private volatile Cycle cycle;
    private volatile long usedNs = System.nanoTime();
    private String said = "";
    private boolean saidSecond;

    private Job(Object key) {
        this.key = key;
    }

    static Job of(Object key) {
        Job found = ALL.get(key);
        if (found == null) {
            long oldestNs = System.nanoTime() - KEPT.toNanos();
            ALL.values().removeIf(job -> job.usedNs - oldestNs < 0);
            found = ALL.computeIfAbsent(key, Job::new);
        }
        found.usedNs = System.nanoTime();
        return found;
    }

    /** The cycle that a context belongs to; its first call asks dsp-gym. */
    synchronized Cycle in(JobAutoScalerContext<?> context) {
        Instant at = context.getMetricsHistory().lastKey();
        if (cycle == null || !cycle.at().equals(at)) {
            Cycle begun = Cycle.begun(context, at);
            (begun.answer() == null ? failures : answers).incrementAndGet();
            say(begun);
            cycle = begun;
        }
        return cycle;
    }

    /** The last cycle, if a context belongs to it; otherwise null. */
    Cycle already(JobAutoScalerContext<?> context) {
        Cycle last = cycle;
        Instant at = context.getMetricsHistory().lastKey();
        return last != null && last.at().equals(at) ? last : null;
    }

    /**
     * Whether a cycle was begun with the options of a context.
     *
     * <p>A chain may name this class twice: the second one, of other options, has no say.
     */
    synchronized boolean isAskedBy(Cycle begun, JobAutoScalerContext<?> context) {
        if (begun.settings().equals(Settings.ofOrNull(context.getConfiguration()))) {
            return true;
        }
        if (!saidSecond) {
            saidSecond = true;
            LOG.warn("{}: two evaluators are DspGymEvaluator, and only the first is asked", key);
        }
        return false;
    }

    /** The last cycle; null before the first. */
    Cycle last() {
        return cycle;
    }

    /** Says what has changed since the cycle before, and only that. */
    private void say(Cycle begun) {
        if (begun.why() != null) {
            if (!begun.why().equals(said)) {
                LOG.warn("{}: the built-in decision stands: {}", key, begun.why());
            }
            said = begun.why();
        } else {
            String mode = "in mode " + begun.settings().mode();
            if (!mode.equals(said)) {
                LOG.info("{}: dsp-gym answers {}", key, mode);
            }
            said = mode;
            LOG.debug("{}: {} {}", key, begun.answer().parallelism(), begun.answer().reason());
        }
    }
}
