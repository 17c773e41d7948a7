package dspgym.flink;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.flink.api.connector.source.SplitEnumerator;
import org.apache.flink.api.connector.source.SplitEnumeratorContext;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * Hands the partitions to the readers round robin when a job first starts.
 *
 * <p>After a restore Flink itself spreads them over the readers, from their state.
 */
final class PartitionAssigner implements SplitEnumerator<Partition, List<Partition>> {

    private final SplitEnumeratorContext<Partition> context;
    private final List<Partition> unassigned;

    PartitionAssigner(SplitEnumeratorContext<Partition> context, List<Partition> unassigned) {
        this.context = context;
        this.unassigned = new ArrayList<>(unassigned);
    }

    @Override
    public void addReader(int subtask) {
        for (Partition partition : List.copyOf(unassigned)) {
            if (partition.number % context.currentParallelism() == subtask) {
                unassigned.remove(partition);
                context.assignSplit(partition, subtask);
            }
        }
        context.signalNoMoreSplits(subtask); // one that has none is idle, not late
    }

    @Override
    public void addSplitsBack(List<Partition> partitions, int subtask) {
        unassigned.addAll(partitions);
    }

    @Override
    public List<Partition> snapshotState(long checkpointId) {
        return List.copyOf(unassigned);
    }

    @Override
    public void start() {}

    @Override
    public void handleSplitRequest(int subtask, String host) {}

    @Override
    public void close() {}

    /** Unassigned partitions in savepoints. */
    static final class Serializer implements SimpleVersionedSerializer<List<Partition>> {

        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(List<Partition> partitions) {
            ByteBuffer bytes = ByteBuffer.allocate(partitions.size() * Partition.Serializer.BYTES);
            partitions.forEach(partition -> Partition.Serializer.write(partition, bytes));
            return bytes.array();
        }

        @Override
        public List<Partition> deserialize(int version, byte[] serialized) throws IOException {
            if (version != getVersion()) {
                throw new IOException("source state of version " + version + " is not read");
            }
            ByteBuffer bytes = ByteBuffer.wrap(serialized);
            List<Partition> partitions = new ArrayList<>();
            while (bytes.hasRemaining()) {
                partitions.add(Partition.Serializer.read(bytes));
            }
            return partitions;
        }
    }
}
