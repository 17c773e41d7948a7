package dspgym.flink;

import java.util.List;
import java.util.stream.IntStream;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.connector.source.Source;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * A source that behaves like a log filled at a given rate: what it could not emit it owes.
 *
 * <p>Records are due when the integral of the rate since the epoch says so, on the wall clock,
 * whether or not the job runs; the position of each partition is kept in state.
 */
class RatedSource<T> implements Source<T, Partition, List<Partition>> {

    private static final long serialVersionUID = 1;

    private final RecordGenerator<T> records;
    private final Load load;
    private final long epochMs;
    private final int partitions;
    private final Pacer pacer;

    RatedSource(RecordGenerator<T> records, Load load, long epochMs, int partitions, Pacer pacer) {
        this.records = records;
        this.load = load;
        this.epochMs = epochMs;
        this.partitions = partitions;
        this.pacer = pacer;
    }

    @Override
    public Boundedness getBoundedness() {
        return Boundedness.CONTINUOUS_UNBOUNDED;
    }

    @Override
    public SourceReader<T, Partition> createReader(SourceReaderContext context) {
        return new RatedReader<>(records, load, epochMs, pacer, context.metricGroup());
    }

    @Override
    public SplitEnumerator<Partition, List<Partition>> createEnumerator(
            SplitEnumeratorContext<Partition> context) {
        return restoreEnumerator(context, IntStream.range(0, partitions)
                .mapToObj(number -> new Partition(number, partitions, epochMs, 0, 0))
                .toList());
    }

    @Override
    public SplitEnumerator<Partition, List<Partition>> restoreEnumerator(
            SplitEnumeratorContext<Partition> context, List<Partition> unassigned) {
        return new PartitionAssigner(context, unassigned);
    }

    @Override
    public SimpleVersionedSerializer<Partition> getSplitSerializer() {
        return new Partition.Serializer();
    }

    @Override
    public SimpleVersionedSerializer<List<Partition>> getEnumeratorCheckpointSerializer() {
        return new PartitionAssigner.Serializer();
    }
}
