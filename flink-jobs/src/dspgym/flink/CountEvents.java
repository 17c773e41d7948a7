package dspgym.flink;

import org.apache.flink.api.common.functions.AggregateFunction;

/** Counts the events of a window as they come, and pays for each. */
final class CountEvents implements AggregateFunction<Event, Long, Long> {

    private static final long serialVersionUID = 1;

    private final Pacer pacer;

    CountEvents(Pacer pacer) {
        this.pacer = pacer;
    }

    @Override
    public Long createAccumulator() {
        return 0L;
    }

    @Override
    public Long add(Event event, Long count) {
        pacer.pay();
        return count + 1;
    }

    @Override
    public Long getResult(Long count) {
        return count;
    }

    @Override
    public Long merge(Long left, Long right) {
        return left + right;
    }
}
