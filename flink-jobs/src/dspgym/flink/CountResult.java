package dspgym.flink;

import org.apache.flink.streaming.api.functions.windowing.WindowFunction;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.util.Collector;

/** Puts the key beside the count of its window. */
final class CountResult<W extends Window> implements WindowFunction<Long, Event, Long, W> {

    private static final long serialVersionUID = 1;

    @Override
    public void apply(Long key, W window, Iterable<Long> counts, Collector<Event> out) {
        for (long count : counts) {
            out.collect(new Event(key, 0, count));
        }
    }
}
