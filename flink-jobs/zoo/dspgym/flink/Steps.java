package dspgym.flink;

import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.Encoder;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.async.ResultFuture;
import org.apache.flink.streaming.api.functions.async.RichAsyncFunction;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedCoProcessFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.WindowStagger;
import org.apache.flink.util.Collector;
import org.apache.flink.util.OutputTag;

/** Operators of the zoo, each of which counts what it does and pays for it. */
final class Steps {

    /** Of side outputs, and of what a window came too late for. */
    static final OutputTag<Long> SIDE = new OutputTag<>("side", Types.LONG);

    private Steps() {}

    /** Chooses one number in so many, of each partition of a source another time. */
    static boolean oneIn(int many, long number) {
        return (number / 8 + number % 8 * many / 8) % many == 0;
    }

    /** What an operator makes of a record. */
    interface Rule extends Serializable {
        void apply(long number, Collector<Long> out);
    }

    /** Gives records on, and counts them. */
    private static Collector<Long> counted(Truth truth, Collector<Long> out) {
        return new Collector<>() {
            @Override
            public void collect(Long number) {
                truth.out();
                out.collect(number);
            }

            @Override
            public void close() {}
        };
    }

    /** Maps, filters, multiplies or swallows. */
    static final class Paced extends ProcessFunction<Long, Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;
        private final Rule rule;

        Paced(Truth truth, Rule rule) {
            this.truth = truth;
            this.rule = rule;
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) {
            truth.of(getRuntimeContext().getMetricGroup());
            truth.in();
            rule.apply(number, counted(truth, out));
        }
    }

    /** Sends one in four to the side. */
    static final class Routing extends ProcessFunction<Long, Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;

        Routing(Truth truth) {
            this.truth = truth;
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) {
            truth.of(getRuntimeContext().getMetricGroup());
            truth.in();
            truth.out();
            if (oneIn(4, number)) {
                context.output(SIDE, number);
            } else {
                out.collect(number);
            }
        }
    }

    /** Emits what arrives on the left once its key has been seen on the right. */
    static final class Joining extends KeyedCoProcessFunction<Long, Long, Long, Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;

        Joining(Truth truth) {
            this.truth = truth;
        }

        private ValueState<Long> seen() {
            truth.of(getRuntimeContext().getMetricGroup());
            return getRuntimeContext().getState(new ValueStateDescriptor<>("seen", Types.LONG));
        }

        @Override
        public void processElement1(Long left, Context context, Collector<Long> out) throws Exception {
            boolean matches = seen().value() != null;
            truth.in();
            if (matches) {
                counted(truth, out).collect(left);
            }
        }

        @Override
        public void processElement2(Long right, Context context, Collector<Long> out) throws Exception {
            seen().update(right);
            truth.in();
        }
    }

    /** Lets records pass; rules only arrive. */
    static final class Ruled extends BroadcastProcessFunction<Long, Long, Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;

        Ruled(Truth truth) {
            this.truth = truth;
        }

        @Override
        public void processElement(Long number, ReadOnlyContext context, Collector<Long> out) {
            truth.of(getRuntimeContext().getMetricGroup());
            truth.in();
            counted(truth, out).collect(number);
        }

        @Override
        public void processBroadcastElement(Long rule, Context context, Collector<Long> out) {
            truth.of(getRuntimeContext().getMetricGroup());
            truth.in();
        }
    }

    /** Asks another system, which takes 20 ms and none of the task's. */
    static final class Asking extends RichAsyncFunction<Long, Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;
        private transient Executor later;

        Asking(Truth truth) {
            this.truth = truth;
        }

        @Override
        public void asyncInvoke(Long number, ResultFuture<Long> answer) {
            if (later == null) {
                later = CompletableFuture.delayedExecutor(20, TimeUnit.MILLISECONDS);
            }
            truth.of(getRuntimeContext().getMetricGroup());
            truth.in();
            truth.out();
            later.execute(() -> answer.complete(Collections.singleton(number)));
        }
    }

    /** Sums; it knows neither its vertex nor its subtask. */
    static final class Summing implements AggregateFunction<Long, Long, Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;

        Summing(Truth truth) {
            this.truth = truth;
        }

        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long number, Long sum) {
            truth.in();
            return number + sum;
        }

        @Override
        public Long getResult(Long sum) {
            truth.out();
            return sum;
        }

        @Override
        public Long merge(Long one, Long other) {
            return one + other;
        }
    }

    /** Tumbling windows of milliseconds: their factory takes another type in each major version. */
    static final class Windows extends TumblingEventTimeWindows {

        private static final long serialVersionUID = 1;

        Windows(long ms) {
            super(ms, 0, WindowStagger.ALIGNED);
        }
    }

    /** Writes a line a record, in the writer of a file sink. */
    static final class Lines implements Encoder<Long> {

        private static final long serialVersionUID = 1;

        private final Truth truth;

        Lines(Truth truth) {
            this.truth = truth;
        }

        @Override
        public void encode(Long number, OutputStream stream) throws IOException {
            truth.in();
            stream.write((number + "\n").getBytes(StandardCharsets.US_ASCII));
        }
    }
}
