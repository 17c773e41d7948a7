package dspgym.flink;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.flink.api.connector.source.SourceSplit;
import org.apache.flink.core.io.SimpleVersionedSerializer;

/**
 * One partition of a source, as of a log: every n-th record of the stream, and how far it was read.
 *
 * <p>A load has an epoch. Resubmitted with the same one, a partition goes on and still owes what
 * became due meanwhile; with another one it owes nothing at first, but its records go on.
 */
final class Partition implements SourceSplit {

    final int number;
    final int of;
    private final long epochMs;
    private final long emittedBefore; // with earlier epochs
    private long emitted;

    Partition(int number, int of, long epochMs, long emittedBefore, long emitted) {
        this.number = number;
        this.of = of;
        this.epochMs = epochMs;
        this.emittedBefore = emittedBefore;
        this.emitted = emitted;
    }

    Partition at(long epoch) {
        return new Partition(number, of, epoch, epoch == epochMs ? emittedBefore : emitted, emitted);
    }

    Partition copy() {
        return at(epochMs);
    }

    /** Number of the next record in the whole stream since the job's first start. */
    long next() {
        return emitted * of + number;
    }

    /** Number of the next record among those of this epoch. */
    long nextOfEpoch() {
        return (emitted - emittedBefore) * of + number;
    }

    /** How many of this partition's records are due and not emitted. */
    long owed(long dueOfSource) {
        long due = (dueOfSource - number + of - 1) / of;
        return Math.max(0, due - (emitted - emittedBefore));
    }

    void advance() {
        emitted++;
    }

    long emitted() {
        return emitted;
    }

    @Override
    public String splitId() {
        return Integer.toString(number);
    }

    /** Partitions in savepoints. */
    static final class Serializer implements SimpleVersionedSerializer<Partition> {

        static final int BYTES = 2 * Integer.BYTES + 3 * Long.BYTES;

        @Override
        public int getVersion() {
            return 1;
        }

        @Override
        public byte[] serialize(Partition partition) {
            ByteBuffer bytes = ByteBuffer.allocate(BYTES);
            write(partition, bytes);
            return bytes.array();
        }

        @Override
        public Partition deserialize(int version, byte[] serialized) throws IOException {
            if (version != getVersion()) {
                throw new IOException("source state of version " + version + " is not read");
            }
            return read(ByteBuffer.wrap(serialized));
        }

        static void write(Partition partition, ByteBuffer bytes) {
            bytes.putInt(partition.number).putInt(partition.of).putLong(partition.epochMs);
            bytes.putLong(partition.emittedBefore).putLong(partition.emitted);
        }

        static Partition read(ByteBuffer bytes) {
            return new Partition(
                    bytes.getInt(), bytes.getInt(), bytes.getLong(), bytes.getLong(), bytes.getLong());
        }
    }
}
