package dspgym.flink;

import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.source.RichParallelSourceFunction;

/** A source of the kind that Flink 2 has no more: its thread says nothing of the time it works. */
@SuppressWarnings("deprecation")
final class LegacySource extends RichParallelSourceFunction<Long> {

    private static final long serialVersionUID = 1;

    private static final long MS_PER_RECORD = 125;

    private final Truth truth;
    private volatile boolean runs = true;

    private LegacySource(Truth truth) {
        this.truth = truth;
    }

    static void build(Zoo zoo) {
        LegacySource source = new LegacySource(zoo.truth("read", 0));
        DataStream<Long> read = zoo.environment.addSource(source).name("read");
        zoo.sink("sink", zoo.paced("map", read, 50, (number, out) -> out.collect(number)).rebalance(), 50);
    }

    @Override
    public void run(SourceContext<Long> context) throws InterruptedException {
        truth.of(getRuntimeContext().getMetricGroup());
        long beganMs = System.currentTimeMillis();
        for (long number = 0; runs; number++) {
            Thread.sleep(Math.max(0, beganMs + number * MS_PER_RECORD - System.currentTimeMillis()));
            synchronized (context.getCheckpointLock()) {
                truth.in();
                truth.out();
                context.collect(number);
            }
        }
    }

    @Override
    public void cancel() {
        runs = false;
    }
}
