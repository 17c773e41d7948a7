package dspgym.flink;

import java.io.Serializable;
import java.util.Arrays;
import java.util.Random;

/**
 * Values that do not compress: pieces of one random pool, at offsets that rarely repeat within the
 * window of RocksDB's compression, which would otherwise make the state smaller than it says.
 */
final class Payload implements Serializable {

    private static final long serialVersionUID = 1;

    private static final int POOL_BYTES = 1 << 20;

    private final int valueBytes;
    private transient byte[] pool;
    private transient long written;

    Payload(int valueBytes) {
        this.valueBytes = valueBytes;
    }

    byte[] next(long key) {
        if (pool == null) {
            pool = new byte[POOL_BYTES + valueBytes];
            new Random(valueBytes).nextBytes(pool);
        }
        int offset = (int) Mix.below(POOL_BYTES, key, written++);
        return Arrays.copyOfRange(pool, offset, offset + valueBytes);
    }
}
