package dspgym.flink;

import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Justin's micro-benchmark (section 3): a read, a write, or both of RocksDB value state per record.
 *
 * <p>The three share their state, so one may start from another's savepoint. With {@code --populate
 * true} the keys come in order, which writes each once in as many records as there are keys.
 */
final class MicroJob {

    /** What a record does to the state of its key. */
    enum Access {
        READ,
        WRITE,
        UPDATE
    }

    private MicroJob() {}

    static void build(JobGraph graph, Arguments arguments, Access access) {
        Keys keys = new Keys(
                arguments.number("seed", 0), arguments.count("keys", 100_000), arguments.flag("populate"));
        StateAccess state =
                new StateAccess(access, arguments.count("value-bytes", 1000), graph.pacer("state"));
        graph.sink(graph.vertex(
                "state",
                graph.source("source", 1, keys)
                        .keyBy(key -> key, Types.LONG)
                        .process(state, Types.LONG)));
    }

    /** Uniform keys, or all in order. */
    private static final class Keys implements RecordGenerator<Long> {

        private static final long serialVersionUID = 1;

        private final long seed;
        private final long keys;
        private final boolean inOrder;

        Keys(long seed, long keys, boolean inOrder) {
            this.seed = seed;
            this.keys = keys;
            this.inOrder = inOrder;
        }

        @Override
        public Long record(long number) {
            return inOrder ? number % keys : Mix.below(keys, seed, number);
        }

        @Override
        public TypeInformation<Long> type() {
            return Types.LONG;
        }
    }

    /** The measured vertex. A key without a value gets one whatever the access. */
    private static final class StateAccess extends KeyedProcessFunction<Long, Long, Long> {

        private static final long serialVersionUID = 1;

        private final Access access;
        private final Payload payload;
        private final Pacer pacer;
        private transient ValueState<byte[]> values;

        StateAccess(Access access, int valueBytes, Pacer pacer) {
            this.access = access;
            this.payload = new Payload(valueBytes);
            this.pacer = pacer;
        }

        @Override
        public void open(OpenContext context) {
            values = getRuntimeContext().getState(new ValueStateDescriptor<>(
                    "value", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
        }

        @Override
        public void processElement(Long key, Context context, Collector<Long> out) throws Exception {
            boolean isMissing = access != Access.WRITE && values.value() == null;
            if (isMissing || access != Access.READ) {
                values.update(payload.next(key));
            }
            pacer.pay();
            out.collect(key);
        }
    }
}
