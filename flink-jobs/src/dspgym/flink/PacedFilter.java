package dspgym.flink;

import java.io.Serializable;
import java.util.function.Predicate;
import org.apache.flink.api.common.functions.FilterFunction;

/** A filter that pays for every record it looks at. */
final class PacedFilter implements FilterFunction<Event> {

    private static final long serialVersionUID = 1;

    private final Pacer pacer;
    private final Condition condition;

    /** What passes. */
    interface Condition extends Predicate<Event>, Serializable {}

    PacedFilter(Pacer pacer, Condition condition) {
        this.pacer = pacer;
        this.condition = condition;
    }

    @Override
    public boolean filter(Event event) {
        pacer.pay();
        return condition.test(event);
    }
}
