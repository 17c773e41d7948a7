package dspgym.flink;

import java.io.Serializable;
import java.util.concurrent.locks.LockSupport;

/**
 * Pays a cost per record by parking the task's thread.
 *
 * <p>Flink counts a parked task as busy, yet it uses no core: many tasks can be saturated on few
 * cores. The cost is paid in batches of milliseconds, because a timer's grain is far coarser than
 * the cost of one record, and what a park took too long is taken off the next: exact on average.
 */
final class Pacer implements Serializable {

    private static final long serialVersionUID = 1;

    static final Pacer FREE = new Pacer(0);

    private static final long BATCH_NS = 3_000_000;

    /** A task that was stopped for long must not run for free for as long. */
    private static final long MOST_CREDIT_NS = 100_000_000;

    private final long costNs;
    private transient long owedNs;
    private transient long lateNs;

    Pacer(double costUs) {
        if (!(costUs >= 0)) {
            throw new IllegalArgumentException("a cost of " + costUs + " microseconds is none");
        }
        this.costNs = Math.round(costUs * 1000);
    }

    /** The same cost, spread over several calls per record. */
    Pacer spreadOver(int calls) {
        return new Pacer(costNs / 1000.0 / calls);
    }

    void pay() {
        owedNs += costNs;
        if (owedNs >= BATCH_NS) {
            long before = System.nanoTime();
            LockSupport.parkNanos(owedNs);
            long parked = System.nanoTime() - before;
            lateNs += Math.max(0, parked - owedNs);
            owedNs = Math.max(owedNs - parked, -MOST_CREDIT_NS);
        }
    }

    /** How much later than asked for the thread was woken, all parks together. */
    long lateNs() {
        return lateNs;
    }
}
