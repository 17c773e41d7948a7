package dspgym.flink;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Joins auctions with their sellers whichever comes first; as in Nexmark nothing ever leaves the
 * state, except auctions whose seller came.
 */
final class IncrementalJoin extends KeyedCoProcessFunction<Long, Event, Event, Event> {

    private static final long serialVersionUID = 1;

    private final Pacer pacer;
    private transient ValueState<Event> person;
    private transient ListState<Event> waiting;

    IncrementalJoin(Pacer pacer) {
        this.pacer = pacer;
    }

    @Override
    public void open(OpenContext context) {
        person = getRuntimeContext()
                .getState(new ValueStateDescriptor<>("person", NexmarkGenerator.EVENT));
        waiting = getRuntimeContext()
                .getListState(new ListStateDescriptor<>("auctions", NexmarkGenerator.EVENT));
    }

    @Override
    public void processElement1(Event auction, Context context, Collector<Event> out) throws Exception {
        pacer.pay();
        Event seller = person.value();
        if (seller == null) {
            waiting.add(auction);
        } else {
            out.collect(new Event(auction.id, seller.id, seller.value));
        }
    }

    @Override
    public void processElement2(Event seller, Context context, Collector<Event> out) throws Exception {
        pacer.pay();
        person.update(seller);
        for (Event auction : waiting.get()) {
            out.collect(new Event(auction.id, seller.id, seller.value));
        }
        waiting.clear();
    }
}
