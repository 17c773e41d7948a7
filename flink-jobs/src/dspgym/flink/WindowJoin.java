package dspgym.flink;

import java.time.Duration;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * Joins persons with the auctions they opened in the same tumbling window of event time.
 *
 * <p>Not {@code DataStream.join}, which puts a vertex of its own between each source and the window.
 */
final class WindowJoin extends KeyedCoProcessFunction<Long, Event, Event, Event> {

    private static final long serialVersionUID = 1;

    private final long windowMs;
    private final Pacer pacer;
    private transient MapState<Long, Event> tallies; // by the window's last millisecond

    WindowJoin(Duration window, Pacer pacer) {
        this.windowMs = window.toMillis();
        this.pacer = pacer;
    }

    @Override
    public void open(OpenContext context) {
        tallies = getRuntimeContext().getMapState(
                new MapStateDescriptor<>("tallies", Types.LONG, NexmarkGenerator.EVENT));
    }

    @Override
    public void processElement1(Event auction, Context context, Collector<Event> out) throws Exception {
        add(context, 0, 1);
    }

    @Override
    public void processElement2(Event person, Context context, Collector<Event> out) throws Exception {
        add(context, 1, 0);
    }

    /** Counts persons in {@code party} and auctions in {@code value} of the window's tally. */
    private void add(Context context, int persons, int auctions) throws Exception {
        pacer.pay();
        long start = TimeWindow.getWindowStartWithOffset(context.timestamp(), 0, windowMs);
        long last = start + windowMs - 1;
        Event tally = tallies.get(last);
        if (tally == null) {
            tally = new Event(context.getCurrentKey(), 0, 0);
            context.timerService().registerEventTimeTimer(last);
        }
        tallies.put(last, new Event(tally.id, tally.party + persons, tally.value + auctions));
    }

    @Override
    public void onTimer(long last, OnTimerContext context, Collector<Event> out) throws Exception {
        Event tally = tallies.get(last);
        if (tally.party > 0 && tally.value > 0) {
            out.collect(tally);
        }
        tallies.remove(last);
    }
}
