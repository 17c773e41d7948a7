package dspgym.flink;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Runs programs over the first records of their sources, in this process, and writes each record
 * that reaches a sink into {@code --out}/PROGRAM.csv.
 *
 * <p>{@code --programs q1,q2} and {@code --records N} for all sources together, besides the
 * arguments of {@link Main}. A record's time is when the load makes it due, counted from 1970.
 */
public final class BoundedRun {

    private static final Queue<String> RECEIVED = new ConcurrentLinkedQueue<>();

    private BoundedRun() {}

    public static void main(String[] args) throws Exception {
        Arguments arguments = new Arguments(args);
        for (String program : arguments.text("programs").split(",")) {
            RECEIVED.clear();
            JobGraph graph = new BoundedGraph(arguments);
            Main.build(program, graph, arguments);
            graph.execute(program);
            Files.write(Path.of(arguments.text("out"), program + ".csv"), RECEIVED);
        }
    }

    /** The vertices of a job between a source that ends and a sink that remembers. */
    private static final class BoundedGraph extends JobGraph {

        private final int records;

        BoundedGraph(Arguments arguments) throws IOException {
            super(arguments);
            records = arguments.count("records", 1000);
        }

        @Override
        <T> SingleOutputStreamOperator<T> source(String name, double share, RecordGenerator<T> generator) {
            Load due = load.scaled(share);
            WatermarkStrategy<Long> timed = WatermarkStrategy.<Long>forMonotonousTimestamps()
                    .withTimestampAssigner((number, before) -> (long) (due.dueAtS(number) * 1000));
            long last = Math.round(records * share) - 1;
            return vertex(
                    name,
                    environment.fromSource(new NumberSequenceSource(0, last), timed, name + "_numbers")
                            .setParallelism(1)
                            .map(generator::record)
                            .returns(generator.type()));
        }

        @Override
        void sink(DataStream<?> records) {
            vertex("sink", records.process(new Remember<>()));
        }

        @Override
        void chainedSink(String vertex, DataStream<?> records) {
            records.process(new Remember<>()).setParallelism(1);
        }
    }

    private static final class Remember<T> extends ProcessFunction<T, Void> {

        private static final long serialVersionUID = 1;

        @Override
        public void processElement(T record, Context context, Collector<Void> out) {
            RECEIVED.add(record instanceof Event event
                    ? event.id + "," + event.party + "," + event.value
                    : record.toString());
        }
    }
}
