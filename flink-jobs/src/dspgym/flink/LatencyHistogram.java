package dspgym.flink;

import java.util.Arrays;
import org.apache.flink.metrics.Histogram;
import org.apache.flink.metrics.HistogramStatistics;

/**
 * Latencies of the last seconds in buckets that grow by an eighth of a power of two.
 *
 * <p>Unlike Flink's sampling histogram it covers a stretch of time, not a number of records, so it
 * forgets a spike at any rate.
 */
final class LatencyHistogram implements Histogram {

    private static final int STEPS = 8; // per power of two
    private static final int BUCKETS = STEPS * 40;

    private final int seconds;
    private final long[][] counts;
    private final long[] second;
    private long total;

    LatencyHistogram(int seconds) {
        this.seconds = seconds;
        this.counts = new long[seconds][BUCKETS];
        this.second = new long[seconds];
    }

    @Override
    public synchronized void update(long latencyMs) {
        long now = System.nanoTime() / 1_000_000_000;
        int slot = (int) Math.floorMod(now, (long) seconds);
        if (second[slot] != now) {
            second[slot] = now;
            Arrays.fill(counts[slot], 0);
        }
        counts[slot][bucket(latencyMs)]++;
        total++;
    }

    @Override
    public synchronized long getCount() {
        return total;
    }

    @Override
    public synchronized HistogramStatistics getStatistics() {
        long now = System.nanoTime() / 1_000_000_000;
        long[] sum = new long[BUCKETS];
        for (int slot = 0; slot < seconds; slot++) {
            if (now - second[slot] < seconds) {
                for (int i = 0; i < BUCKETS; i++) {
                    sum[i] += counts[slot][i];
                }
            }
        }
        return new Statistics(sum);
    }

    /** Milliseconds below 8 have a bucket each; then eight buckets per power of two. */
    static int bucket(long latencyMs) {
        if (latencyMs < STEPS) {
            return (int) Math.max(0, latencyMs);
        }
        int power = 63 - Long.numberOfLeadingZeros(latencyMs); // 3 and more
        int step = (int) (latencyMs >>> (power - 3)) - STEPS;
        return Math.min((power - 2) * STEPS + step, BUCKETS - 1);
    }

    /** The middle of a bucket. */
    static double middle(int bucket) {
        if (bucket < STEPS) {
            return bucket;
        }
        int power = bucket / STEPS + 2;
        double width = 1L << (power - 3);
        return (bucket % STEPS + STEPS) * width + (width - 1) / 2;
    }

    /** What the reporters read; NaN where nothing arrived. */
    private static final class Statistics extends HistogramStatistics {

        private final long[] counts;
        private final long size;

        Statistics(long[] counts) {
            this.counts = counts;
            this.size = Arrays.stream(counts).sum();
        }

        @Override
        public double getQuantile(double quantile) {
            long rank = Math.max(1, (long) Math.ceil(quantile * size));
            long seen = 0;
            for (int i = 0; i < counts.length; i++) {
                seen += counts[i];
                if (counts[i] > 0 && seen >= rank) {
                    return middle(i);
                }
            }
            return Double.NaN;
        }

        @Override
        public long[] getValues() {
            return counts.clone();
        }

        @Override
        public int size() {
            return (int) Math.min(size, Integer.MAX_VALUE);
        }

        @Override
        public double getMean() {
            double sum = 0;
            for (int i = 0; i < counts.length; i++) {
                sum += counts[i] * middle(i);
            }
            return sum / size; // NaN if empty
        }

        @Override
        public double getStdDev() {
            double mean = getMean();
            double sum = 0;
            for (int i = 0; i < counts.length; i++) {
                sum += counts[i] * (middle(i) - mean) * (middle(i) - mean);
            }
            return Math.sqrt(sum / size);
        }

        @Override
        public long getMax() {
            return size == 0 ? 0 : Math.round(getQuantile(1));
        }

        @Override
        public long getMin() {
            return size == 0 ? 0 : Math.round(getQuantile(0));
        }
    }
}
