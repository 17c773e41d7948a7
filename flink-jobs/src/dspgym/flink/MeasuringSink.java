package dspgym.flink;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.metrics.MetricGroup;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Discards records, counts them and measures their latency.
 *
 * <p>A record's latency is now less its timestamp: for a record that passed through, when it became
 * due at the source; for a result of a window, the window's end, so that the time spent in the
 * window does not count, but being late because of a backlog does.
 *
 * <p>A function without output rather than a {@code Sink}, whose vertex Flink would name otherwise.
 */
final class MeasuringSink<T> extends ProcessFunction<T, Void> implements CheckpointedFunction {

    private static final long serialVersionUID = 1;

    private final Pacer pacer;
    private final int latencySeconds;
    private transient ListState<Long> receivedState;
    private transient LatencyHistogram latency;
    private transient volatile long received;

    MeasuringSink(Pacer pacer, int latencySeconds) {
        this.pacer = pacer;
        this.latencySeconds = latencySeconds;
    }

    @Override
    public void open(OpenContext context) {
        MetricGroup metrics = getRuntimeContext().getMetricGroup();
        metrics.gauge("receivedRecordsTotal", () -> received);
        latency = metrics.histogram("endToEndLatencyMs", new LatencyHistogram(latencySeconds));
    }

    @Override
    public void processElement(T record, Context context, Collector<Void> out) {
        latency.update(System.currentTimeMillis() - context.timestamp());
        received = received + 1; // only this thread writes
        pacer.pay();
    }

    @Override
    public void initializeState(FunctionInitializationContext context) throws Exception {
        receivedState = context.getOperatorStateStore()
                .getListState(new ListStateDescriptor<>("received", Types.LONG));
        for (long count : receivedState.get()) {
            received += count;
        }
    }

    @Override
    public void snapshotState(FunctionSnapshotContext context) throws Exception {
        receivedState.update(java.util.List.of(received));
    }
}
