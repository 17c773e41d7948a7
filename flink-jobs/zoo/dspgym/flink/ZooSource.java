package dspgym.flink;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.metrics.Counter;

/** Numbers at a constant rate. */
final class ZooSource extends RatedSource<Long> {

    private static final long serialVersionUID = 1;

    private final Numbers numbers;

    /** `countsInput`: as sources on Flink's SourceReaderBase do, and generators do not. */
    ZooSource(Truth truth, double ratePerS, boolean countsInput) {
        this(new Numbers(truth, countsInput), ratePerS);
    }

    private ZooSource(Numbers numbers, double ratePerS) {
        super(
                numbers,
                new Load(new double[] {0}, new double[] {ratePerS}),
                System.currentTimeMillis(),
                8,
                Pacer.FREE);
        this.numbers = numbers;
    }

    @Override
    public SourceReader<Long, Partition> createReader(SourceReaderContext context) {
        numbers.truth.of(context.metricGroup());
        if (numbers.countsInput) {
            numbers.counter = context.metricGroup().getIOMetricGroup().getNumRecordsInCounter();
        }
        return super.createReader(context);
    }

    /** The numbers themselves, counted. */
    private static final class Numbers implements RecordGenerator<Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;
        private final boolean countsInput;
        private transient Counter counter;

        Numbers(Truth truth, boolean countsInput) {
            this.truth = truth;
            this.countsInput = countsInput;
        }

        @Override
        public Long record(long number) {
            truth.in();
            truth.out();
            if (counter != null) {
                counter.inc();
            }
            return number;
        }

        @Override
        public TypeInformation<Long> type() {
            return Types.LONG;
        }
    }
}
