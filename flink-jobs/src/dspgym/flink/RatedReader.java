package dspgym.flink;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.metrics.groups.SourceReaderMetricGroup;

/**
 * Emits what its partitions owe, oldest first, and sleeps while they owe nothing.
 *
 * <p>A record's timestamp is the moment it became due, so latency downstream counts from there, and
 * the watermark follows the oldest record not yet emitted.
 */
final class RatedReader<T> implements SourceReader<T, Partition> {

    /** Few enough that a barrier never waits long behind a batch that is held back. */
    private static final int BATCH_RECORDS = 32;

    /** Waking for each record would cost a core at high rates; 5 ms of latency are the price. */
    private static final long SHORTEST_SLEEP_MS = 5;

    private static final long WATERMARK_EVERY_MS = 50;

    private final RecordGenerator<T> records;
    private final Load load;
    private final long epochMs;
    private final Pacer pacer;
    private final List<Partition> partitions = new CopyOnWriteArrayList<>();
    private final ScheduledExecutorService timer = Executors.newSingleThreadScheduledExecutor(task -> {
        Thread thread = new Thread(task, "source-timer");
        thread.setDaemon(true);
        return thread;
    });
    private CompletableFuture<Void> due = CompletableFuture.completedFuture(null);
    private long watermarkAtMs;
    private boolean allAssigned;

    RatedReader(
            RecordGenerator<T> records,
            Load load,
            long epochMs,
            Pacer pacer,
            SourceReaderMetricGroup metrics) {
        this.records = records;
        this.load = load;
        this.epochMs = epochMs;
        this.pacer = pacer;
        metrics.setPendingRecordsGauge(this::owed);
        metrics.gauge("emittedRecordsTotal", this::emitted);
    }

    @Override
    public void start() {}

    @Override
    public InputStatus pollNext(ReaderOutput<T> output) {
        if (partitions.isEmpty()) {
            if (allAssigned) {
                output.markIdle(); // or it would hold back every watermark downstream
            }
            return InputStatus.NOTHING_AVAILABLE;
        }
        long nowMs = System.currentTimeMillis();
        long dueOfSource = load.due(secondsSinceEpoch(nowMs));
        Partition oldest = oldest();
        for (int i = 0; i < BATCH_RECORDS && oldest.nextOfEpoch() < dueOfSource; i++) {
            output.collect(records.record(oldest.next()), dueAtMs(oldest));
            oldest.advance();
            pacer.pay();
            oldest = oldest();
        }
        if (nowMs - watermarkAtMs >= WATERMARK_EVERY_MS) {
            watermarkAtMs = nowMs;
            output.emitWatermark(new Watermark(Math.min(nowMs, dueAtMs(oldest)) - 1));
        }
        return oldest.nextOfEpoch() < dueOfSource
                ? InputStatus.MORE_AVAILABLE
                : InputStatus.NOTHING_AVAILABLE;
    }

    @Override
    public CompletableFuture<Void> isAvailable() {
        if (due.isDone() && partitions.isEmpty()) {
            due = new CompletableFuture<>(); // until partitions come
        } else if (due.isDone()) {
            long nowMs = System.currentTimeMillis();
            // Asked of the very number pollNext goes by: times are rounded to milliseconds, and a
            // source that thinks a record due which is not would spin on a core.
            if (oldest().nextOfEpoch() >= load.due(secondsSinceEpoch(nowMs))) {
                long waitMs = dueAtMs(oldest()) - nowMs;
                CompletableFuture<Void> next = new CompletableFuture<>();
                // No longer than to the next watermark, which windows wait for.
                long sleepMs = Math.max(SHORTEST_SLEEP_MS, Math.min(waitMs, WATERMARK_EVERY_MS));
                timer.schedule(() -> next.complete(null), sleepMs, TimeUnit.MILLISECONDS);
                due = next;
            }
        }
        return due;
    }

    @Override
    public void addSplits(List<Partition> added) {
        added.forEach(partition -> partitions.add(partition.at(epochMs)));
        due.complete(null);
    }

    @Override
    public List<Partition> snapshotState(long checkpointId) {
        return partitions.stream().map(Partition::copy).toList();
    }

    @Override
    public void notifyNoMoreSplits() {
        allAssigned = true;
        due.complete(null);
    }

    @Override
    public void close() {
        timer.shutdownNow();
    }

    private Partition oldest() {
        Partition oldest = partitions.get(0);
        for (int i = 1; i < partitions.size(); i++) {
            if (partitions.get(i).nextOfEpoch() < oldest.nextOfEpoch()) {
                oldest = partitions.get(i);
            }
        }
        return oldest;
    }

    private long dueAtMs(Partition partition) {
        double dueAtS = load.dueAtS(partition.nextOfEpoch());
        return Double.isInfinite(dueAtS) ? Long.MAX_VALUE : epochMs + (long) (dueAtS * 1000);
    }

    private double secondsSinceEpoch(long nowMs) {
        return (nowMs - epochMs) / 1000.0;
    }

    private long owed() {
        long dueOfSource = load.due(secondsSinceEpoch(System.currentTimeMillis()));
        return partitions.stream().mapToLong(partition -> partition.owed(dueOfSource)).sum();
    }

    private long emitted() {
        return partitions.stream().mapToLong(Partition::emitted).sum();
    }
}
