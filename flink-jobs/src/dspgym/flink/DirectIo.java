package dspgym.flink;

import java.util.Collection;
import org.apache.flink.state.rocksdb.RocksDBOptionsFactory;
import org.rocksdb.ColumnFamilyOptions;
import org.rocksdb.DBOptions;

/**
 * Makes RocksDB bypass the page cache, as Justin ran it: only then does a miss of the block cache
 * cost a read of the disk, and managed memory matter.
 */
public final class DirectIo implements RocksDBOptionsFactory {

    private static final long serialVersionUID = 1;

    @Override
    public DBOptions createDBOptions(DBOptions current, Collection<AutoCloseable> toClose) {
        return current.setUseDirectReads(true).setUseDirectIoForFlushAndCompaction(true);
    }

    @Override
    public ColumnFamilyOptions createColumnOptions(
            ColumnFamilyOptions current, Collection<AutoCloseable> toClose) {
        return current;
    }
}
