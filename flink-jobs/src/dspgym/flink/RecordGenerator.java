package dspgym.flink;

import java.io.Serializable;
import org.apache.flink.api.common.typeinfo.TypeInformation;

/**
 * The records of a source: a function of their number, so that a restored source goes on with the
 * same stream.
 */
interface RecordGenerator<T> extends Serializable {

    /** The record of that number; valid until the next call. */
    T record(long number);

    TypeInformation<T> type();
}
